from __future__ import annotations

import torch

from andrea_rundir.layout import Shape
from andrea_train import model
from andrea_train.sampler import Cache, continue_prompts, draws, extend

SHAPE = Shape(vocab_size=50, d_model=32, n_heads=4, n_layers=2, context=24)


def weights() -> model.Weights:
    return model.weights(model.initial(SHAPE, 1) * 8, SHAPE)


def test_the_cache_gives_the_scores_of_a_full_pass() -> None:
    tokens = torch.randint(0, 50, (3, 24), generator=torch.Generator().manual_seed(1))
    cache = Cache(weights(), 3, 24, SHAPE.n_heads)
    stepwise = [extend(weights(), tokens[:, :7], cache, SHAPE.n_heads)]
    stepwise += [extend(weights(), tokens[:, i : i + 1], cache, SHAPE.n_heads) for i in range(7, 24)]
    whole = model.logits(weights(), tokens, SHAPE.n_heads)[:, 6:]
    torch.testing.assert_close(torch.stack(stepwise, 1), whole, rtol=1e-4, atol=1e-5)


def drawn(seeds: list[int], prompts: torch.Tensor, temperature: float = 0.8) -> torch.Tensor:
    uniform = torch.stack([draws(seed, 16) for seed in seeds])
    tokens = continue_prompts(
        weights(),
        prompts,
        n_heads=SHAPE.n_heads,
        uniform=uniform,
        temperature=temperature,
        interrupted=lambda: False,
    )
    assert tokens is not None
    return tokens


def test_equal_streams_draw_equal_tokens_whatever_torch_drew_before() -> None:
    prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    first = drawn([1, 2], prompts)
    torch.rand(100)
    assert torch.equal(first, drawn([1, 2], prompts))
    assert not torch.equal(first, drawn([3, 4], prompts))


def test_sampling_leaves_torch_generator_state_alone() -> None:
    before = torch.get_rng_state()
    drawn([1], torch.tensor([[1, 2]]))
    assert torch.equal(before, torch.get_rng_state())


def test_frequencies_follow_the_softmax() -> None:
    prompt = torch.tensor([[3, 1]])
    scores = model.logits(weights(), prompt, SHAPE.n_heads)[0, -1].double()
    expected = torch.softmax(scores / 0.8, -1)
    uniform = (torch.arange(20_000, dtype=torch.float64)[:, None] + 0.5) / 20_000
    tokens = continue_prompts(
        weights(), prompt.expand(20_000, 2), n_heads=4, uniform=uniform, temperature=0.8, interrupted=lambda: False
    )
    assert tokens is not None
    seen = torch.bincount(tokens[:, 0], minlength=50) / 20_000
    torch.testing.assert_close(seen.double(), expected, rtol=0, atol=2e-3)


def test_temperature_zero_takes_the_likeliest() -> None:
    prompt = torch.tensor([[3, 1]])
    likeliest = model.logits(weights(), prompt, SHAPE.n_heads)[0, -1].argmax()
    assert drawn([1], prompt, temperature=0)[0, 0] == likeliest


def test_broken_off_between_two_tokens() -> None:
    calls = iter([False, False, True])
    uniform = draws(1, 16)[None]
    stopped = continue_prompts(
        weights(),
        torch.tensor([[1]]),
        n_heads=4,
        uniform=uniform,
        temperature=0.8,
        interrupted=lambda: next(calls),
    )
    assert stopped is None
    assert next(calls, "heard at the third token") == "heard at the third token"
