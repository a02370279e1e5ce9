"""The sample audit: six texts the model writes at every checkpoint, judged for running in circles.

Promises that the same weights at the same step write the same texts, and that an audit changes nothing of the
training. Writes no file: the loop puts the result into the events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from andrea_corpus.order import stream_seed
from andrea_corpus.shards import Shard
from andrea_corpus.tokenizer import Tokenizer
from andrea_rundir.layout import Shape
from andrea_rundir.sections import SamplesConfig
from andrea_train import looped, model
from andrea_train.sampler import continue_prompts, draws

PROMPTS = 6
PROMPT_TOKENS = 32
YARDSTICK_WINDOWS = 64
ALARM_AT = 2


@dataclass(frozen=True)
class Audit:
    """Everything an audit needs besides weights and step."""

    prompts: list[NDArray[np.int64]]
    held_out_ratio: float
    tokenizer: Tokenizer
    config: SamplesConfig
    seed: int

    @classmethod
    def over(
        cls,
        shards: Mapping[str, Shard],
        tokenizer: Tokenizer,
        config: SamplesConfig,
        *,
        context: int,
        seed: int,
    ) -> Audit:
        """An audit with the configured prompts, or else openings of held-out text, taken in turn from the arms."""
        tokens = min(config.tokens, context - 1)
        room = max(1, min(PROMPT_TOKENS, context - tokens))
        if config.prompts:
            prompts = [tokenizer.encode(text.encode()).astype(np.int64)[-room:] for text in config.prompts]
        else:
            prompts = openings(shards, room)
        held = [w for shard in shards.values() for w in shard.held_windows(tokens, YARDSTICK_WINDOWS)]
        ratio = looped.yardstick(tokenizer.decode(window) for window in held)
        return cls(prompts, ratio, tokenizer, config.model_copy(update={"tokens": tokens}), seed)

    def run(self, flat: Tensor, shape: Shape, step: int, interrupted: Callable[[], bool]) -> dict[str, Any] | None:
        """The fields of an audit event for the weights `flat` after `step` steps; None when broken off."""
        texts = self._write(model.weights(flat, shape), shape.n_heads, step, interrupted)
        if texts is None:
            return None
        samples = []
        for prompt, written in zip(self.prompts, texts, strict=True):
            why = looped.verdict(written, self.held_out_ratio)
            opening = self.tokenizer.decode(prompt).decode("utf-8", "replace")
            text = written.decode("utf-8", "replace")
            samples.append({"prompt": opening, "text": text, "looped": why is not None, "why": why})
        count = sum(sample["looped"] is True for sample in samples)
        score = 100.0 * (1 - count / len(samples))
        return {"looped": count, "score": score, "alarm": count >= ALARM_AT, "samples": samples}

    def _write(
        self, weights: model.Weights, n_heads: int, step: int, interrupted: Callable[[], bool]
    ) -> list[bytes] | None:
        texts = [b""] * len(self.prompts)
        for length in sorted({len(prompt) for prompt in self.prompts}):  # equal lengths go through together
            rows = [i for i, prompt in enumerate(self.prompts) if len(prompt) == length]
            streams = [stream_seed(self.seed, f"audit {i}", step) for i in rows]
            drawn = continue_prompts(
                weights,
                torch.from_numpy(np.stack([self.prompts[i] for i in rows])).to(weights.head.device),
                n_heads=n_heads,
                uniform=torch.stack([draws(seed, self.config.tokens) for seed in streams]),
                temperature=self.config.temperature,
                interrupted=interrupted,
            )
            if drawn is None:
                return None
            for i, tokens in zip(rows, drawn, strict=True):
                texts[i] = self.tokenizer.decode(tokens.numpy())
        return texts


def openings(shards: Mapping[str, Shard], length: int) -> list[NDArray[np.int64]]:
    """Six pieces of `length` held-out tokens, from the arms in turn, spread over each arm's held-out text."""
    arms = sorted(shards)
    picked = []
    for i in range(PROMPTS):
        shard = shards[arms[i % len(arms)]]
        turns = -(-PROMPTS // len(arms))
        start = (len(shard.held) - length) * (i // len(arms)) // turns
        picked.append(np.asarray(shard.held[start : start + length]).astype(np.int64))
    return picked
