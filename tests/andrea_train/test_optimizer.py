from __future__ import annotations

import torch

from andrea_rundir.layout import Shape
from andrea_rundir.sections import OptimizerConfig
from andrea_train import model
from andrea_train.optimizer import AdamW, length
from andrea_train.state import State

FINITE = torch.ones(4)
SHAPE = Shape(vocab_size=50, d_model=32, n_heads=4, n_layers=2, context=16)


def made(**settings: float) -> tuple[State, AdamW]:
    state = State(SHAPE, torch.device("cpu"))
    state.w.copy_(model.initial(SHAPE, 1))
    return state, AdamW(state, SHAPE, OptimizerConfig.model_validate(settings))


def gradient(step: int, scale: float) -> torch.Tensor:
    return scale * torch.randn(SHAPE.n_params, generator=torch.Generator().manual_seed(step))


def test_the_norm_of_a_hundred_million_values_is_exact_to_float32() -> None:
    """What the clip divides by. Summed at once in float32 it is 1 % too small."""
    vector = torch.randn(98_000_123, generator=torch.Generator().manual_seed(1))
    exact = sum(float(piece.double().square().sum()) for piece in vector.split(1 << 20)) ** 0.5
    assert abs(float(length(vector)) / exact - 1) < 2e-6
    assert float(length(vector[:3])) == float(torch.linalg.vector_norm(vector[:3]))
    vector[-1] = float("nan")
    assert not torch.isfinite(length(vector))


def test_equals_torch_adamw_with_clip_a_tensor_a_parameter() -> None:
    state, ours = made(weight_decay=0.1, grad_clip=1.0)
    tensors = [t.clone().requires_grad_() for t in model.weights(state.w, SHAPE).tensors()]
    plain = torch.optim.AdamW(
        [{"params": tensors[:2], "weight_decay": 0.0}, {"params": tensors[2:], "weight_decay": 0.1}], lr=1e-2, eps=1e-8
    )
    for step in range(1, 20):
        flat = gradient(step, 0.001 if step % 2 else 1.0)  # under and over the clip
        ours.gradient.copy_(flat)
        for tensor, part in zip(tensors, model.weights(flat, SHAPE).tensors(), strict=True):
            tensor.grad = part.clone()
        norm = torch.nn.utils.clip_grad_norm_(tensors, 1.0)
        plain.step()
        update = ours.step(1e-2, FINITE)
        torch.testing.assert_close(update.norm, norm)
    assert state.step == 19
    expected = torch.cat([t.detach().flatten() for t in tensors])
    torch.testing.assert_close(state.w, expected, rtol=1e-5, atol=1e-6)


def test_a_gradient_that_is_not_finite_changes_no_bit_but_counts_as_a_step() -> None:
    for bad in (float("nan"), float("inf"), float("-inf")):
        state, ours = made()
        ours.gradient.copy_(gradient(1, 1.0))
        ours.step(1e-2, FINITE)
        before = [t.clone() for t in (state.w, state.m, state.v)]
        ours.gradient[SHAPE.n_params // 2] = bad
        update = ours.step(1e-2, FINITE)
        assert update.skipped == 1.0
        assert state.step == 2
        assert all(torch.equal(a, b) for a, b in zip(before, (state.w, state.m, state.v), strict=True))


def test_a_refused_update_changes_no_bit() -> None:
    state, ours = made()
    before = state.w.clone()
    ours.gradient.copy_(gradient(1, 1.0))
    assert ours.step(1e-2, FINITE, refuse=True).skipped == 1.0
    assert torch.equal(before, state.w)


def test_a_scaled_gradient_gives_the_bits_of_the_unscaled_one() -> None:
    (one, plain), (two, scaled) = made(), made()
    plain.gradient.copy_(gradient(3, 0.01))
    scaled.gradient.copy_(gradient(3, 0.01) * 4096)
    plain.step(1e-2, FINITE)
    scaled.step(1e-2, FINITE, scale=4096.0)
    assert torch.equal(one.w, two.w)


def test_a_loss_that_is_not_finite_is_not_applied_even_with_a_finite_gradient() -> None:
    """A target whose logit is -inf gives an infinite loss and a gradient of ones: fp16 overflow looks like that."""
    state, ours = made()
    before = state.w.clone()
    ours.gradient.copy_(gradient(1, 0.01))
    assert ours.step(1e-2, torch.tensor([2.0, float("inf"), 2.0, 2.0])).skipped == 1.0
    assert torch.equal(before, state.w)
    assert state.step == 1
