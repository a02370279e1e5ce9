"""The figures of one step: what its event says of it, and the mean loss of each arm.

Pure; writes no file. Imports numpy, the feed and the stepper.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from andrea_train.feed import Batch, Feed
from andrea_train.stepper import Taken

ArmLosses = dict[str, tuple[int, float]]
"""Of each arm in a batch: its pulls, and their mean loss in nats a token."""


def arm_losses(batch: Batch, each: list[float]) -> ArmLosses:
    """Of a batch, from the loss of each of its sequences."""
    arms, at = {}, 0
    for arm, pulls in batch.pulls.items():
        arms[arm] = (pulls, sum(each[at : at + pulls]) / pulls)
        at += pulls
    return arms


def figures(batch: Batch, taken: Taken, arms: ArmLosses, feed: Feed, byte_lengths: NDArray[np.int32]) -> dict[str, Any]:
    """The fields of the step event that its batch, its update and the feed after it give; None for what is not finite.

    `byte_lengths` says how many bytes of text each token stands for.
    """
    return {
        "loss": number(taken.loss),
        "arms": {arm: [pulls, number(loss), _bytes(batch, arm, byte_lengths)] for arm, (pulls, loss) in arms.items()},
        "grad_norm": number(taken.norm),
        "tokens": batch.windows[:, 1:].size,
        "policy": feed.round.policy if feed.round else "",
        "flags": ["skipped"] * taken.skipped + ["fallback"] * feed.fell_back,
        "cursors": feed.cursors,
        "credits": feed.credits,
    }


def number(value: float) -> float | None:
    """The value; None where it is not finite, which JSON cannot say."""
    return value if math.isfinite(value) else None


def _bytes(batch: Batch, arm: str, byte_lengths: NDArray[np.int32]) -> int:
    """How many bytes of text the targets of an arm's sequences stand for."""
    names = [name for name, pulls in batch.pulls.items() for _ in range(pulls)]
    rows = [i for i, name in enumerate(names) if name == arm]
    return int(byte_lengths[batch.windows[rows, 1:]].sum())
