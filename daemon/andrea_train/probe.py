"""The probe: how well the model predicts text it never trains on, in bits a byte, one figure an arm.

Promises to touch no training stream, to look at the same held-out windows every time, and to run uncompiled, so
that it cannot make the compiler treat the training step differently. Writes no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from andrea_corpus.shards import Shard
from andrea_rundir.layout import Shape
from andrea_train import model

WINDOWS_AN_ARM = 8


@dataclass(frozen=True)
class Probe:
    """Held-out windows an arm, int64 `[k, T+1]`, and the bytes that each token stands for, int32 `[V]`."""

    windows: dict[str, NDArray[np.int64]]
    byte_lengths: NDArray[np.int32]
    priors: dict[str, float]
    batch_size: int

    @classmethod
    def over(
        cls,
        shards: Mapping[str, Shard],
        priors: Mapping[str, float],
        byte_lengths: NDArray[np.int32],
        *,
        context: int,
        batch_size: int,
    ) -> Probe:
        """A probe over the held-out part of every arm."""
        windows = {arm: shards[arm].held_windows(context, WINDOWS_AN_ARM).astype(np.int64) for arm in sorted(shards)}
        return cls(windows, byte_lengths, dict(priors), batch_size)

    @torch.no_grad()
    def measure(self, flat: Tensor, shape: Shape, interrupted: Callable[[], bool]) -> dict[str, float] | None:
        """Bits a byte by arm for the weights `flat` (float32 `[n_params]`); None when broken off."""
        weights = model.weights(flat, shape)
        bits = {}
        for arm, windows in self.windows.items():
            nats = 0.0
            for part in np.array_split(windows, math.ceil(len(windows) / self.batch_size)):
                if interrupted():
                    return None
                losses = model.losses(weights, torch.from_numpy(part).to(flat.device), shape.n_heads)
                nats += float(losses.double().sum()) * (part.shape[1] - 1)
            bits[arm] = nats / math.log(2) / int(self.byte_lengths[windows[:, 1:]].sum())
        return bits

    def mean(self, bits: Mapping[str, float]) -> float:
        """The prior-weighted mean over arms: the objective of the run."""
        total = math.fsum(self.priors[arm] for arm in bits)
        return math.fsum(self.priors[arm] * bits[arm] for arm in sorted(bits)) / total
