"""Writing text with a key-value cache beside recomputing every prefix, as a few lines of PyTorch would.

    python benchmarks/sampling.py [--quick]

Six prompts of 32 tokens, as an audit has them; both sides draw from the same numbers and must write the same tokens.
What
an audit is of 100 steps stands in `step.py`'s rows.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pairs
from apart import apart, main
from publish import ROUNDS, shape_of

PROMPTS, PROMPT = 6, 32
LENGTHS = {"andrea-tiny": (32, 128, 224), "andrea-12m": (32, 128), "andrea-120m": (32,)}
TEMPERATURE = 0.8


def both(name: str, tokens: str) -> dict[str, list[float]]:
    """Seconds of each side, round by round, and the share of their tokens that are equal."""
    import torch

    from andrea_train import model
    from andrea_train.sampler import continue_prompts, draws

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    shape = shape_of(name)
    weights = model.weights(model.initial(shape, 1), shape)
    prompts = torch.randint(shape.vocab_size, (PROMPTS, PROMPT), generator=torch.Generator().manual_seed(2))
    uniform = torch.stack([draws(seed, int(tokens)) for seed in range(PROMPTS)])
    written: dict[str, torch.Tensor] = {}

    def cached() -> float:
        began = time.perf_counter()
        found = continue_prompts(
            weights,
            prompts,
            n_heads=shape.n_heads,
            uniform=uniform,
            temperature=TEMPERATURE,
            interrupted=lambda: False,
        )
        assert found is not None
        written["ours"] = found
        return time.perf_counter() - began

    @torch.no_grad()
    def recomputed() -> float:
        began, text = time.perf_counter(), prompts
        for i in range(uniform.shape[1]):
            scores = model.logits(weights, text, shape.n_heads)[:, -1].double()
            mass = torch.softmax(scores / TEMPERATURE, -1).cumsum(-1)
            choice = torch.searchsorted(mass, uniform[:, i : i + 1] * mass[:, -1:], right=True)
            text = torch.cat([text, choice.clamp(max=shape.vocab_size - 1)], 1)
        written["theirs"] = text[:, PROMPT:]
        return time.perf_counter() - began

    cached(), recomputed()
    found = pairs.alternate({"ours": cached, "theirs": recomputed}, ROUNDS)
    return {**found, "equal": [float((written["ours"] == written["theirs"]).double().mean())]}


def rows(quick: bool) -> Iterator[pairs.Row]:
    for name, lengths in LENGTHS.items():
        for tokens in lengths[:1] if quick else lengths:
            found = apart(__file__, "both", name, tokens)
            assert found["equal"][0] > 0.9, f"the sides write different texts: {found['equal'][0]:.0%} of it is equal"
            size = f"{shape_of(name).n_params / 1e6:.1f}M, {tokens} tokens"
            yield pairs.faster("six samples", size, "no cache", found["ours"], found["theirs"])
        if quick:
            return


if __name__ == "__main__":
    sys.exit(main({"both": both}, rows))
