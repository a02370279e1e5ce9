"""One learner through one run, as a real run has it: rounds, the lag of two, projection, dealer, entries.

What the pulls give is a `World`'s business: a formula here, a model that is trained in `training.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from andrea_corpus.dealer import deal
from andrea_corpus.projection import cap_units, project, to_units
from andrea_proxy.learners import Learner, StepRecord
from curriculum.families import ARMS, CAP, FLOOR, Environment, Floats

BATCH = 8
ROUND = 20
TOKENS = 256
NAMES = tuple(f"arm{i:02d}" for i in range(ARMS))
NATS = {name: math.log(2.0) * (2 + i % 4) for i, name in enumerate(NAMES)}
"""Nats per token of one bit per byte: tokens are 2 to 5 bytes long, by arm, and the learner has to undo that."""

Arms = dict[str, tuple[int, float, int]]
"""The arms of a step as an entry has them: (pulls, mean nats per token, bytes)."""


class World(Protocol):
    """What a learner is set before: arms of so many `windows`, sequences of so many `tokens`."""

    @property
    def windows(self) -> Mapping[str, float]:
        """An epoch of each arm, in pulls."""

    @property
    def tokens(self) -> int:
        """Predicted tokens of a pull."""

    def train(self, step: int, counts: Mapping[str, int], cursors: Mapping[str, int]) -> Arms:
        """The step (from 1) of `counts` pulls by arm, which begin at `cursors`."""


def play(world: World, learner: Learner, steps: int) -> dict[str, int]:
    """Pulls of each arm at the end of a run of that many steps; the learner new.

    The shares of round k come from a learner that has seen the steps up to the end of round k - 2, those of the
    first two rounds from the prior, which is even.
    """
    windows = world.windows
    names = tuple(windows)
    floors, caps = dict.fromkeys(names, FLOOR), dict.fromkeys(names, CAP)
    most, no_limits = cap_units(caps), dict[str, int | None].fromkeys(names)
    cursors, credit = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    before: list[StepRecord] = []
    last: list[StepRecord] = []
    for first in range(0, steps, ROUND):
        for record in before:
            learner.observe(record)
        before, last = last, []
        epochs = {name: cursors[name] / windows[name] for name in names}
        weights = dict.fromkeys(names, 1.0) if first < 2 * ROUND else learner.weights(names, {}, epochs)
        units = to_units(project(weights, floors, caps).shares)
        for step in range(first + 1, min(first + ROUND, steps) + 1):
            dealt = deal(units, cursors, credit, no_limits, BATCH, caps=most)
            arms = world.train(step, dealt.counts, cursors)
            last.append(StepRecord(step, world.tokens, arms, {name: cursors[name] / windows[name] for name in arms}))
            cursors, credit = dealt.cursors, dealt.credits
    return cursors


class Synthetic:
    """A world of learning curves; `noise` as from `noise_table`."""

    tokens = TOKENS

    def __init__(self, env: Environment, noise: Floats, steps: int) -> None:
        self._env, self._noise, self._steps = env, noise, steps
        self.windows = dict(zip(NAMES, env.windows.tolist(), strict=True))

    def train(self, step: int, counts: Mapping[str, int], cursors: Mapping[str, int]) -> Arms:
        pulled = np.array([float(cursors[name]) for name in NAMES])
        true = self._env.losses(pulled) + self._env.common((step - 1) / self._steps)
        arms = {}
        for name, count in counts.items():
            row, start = NAMES.index(name), cursors[name]
            bits = float(true[row]) + math.fsum(self._noise[row, start : start + count]) / count
            arms[name] = (count, bits * NATS[name], count * TOKENS * (2 + row % 4))
        return arms
