"""One learner through one synthetic run, as a real run has it: rounds, the lag of two, projection, dealer, entries."""

from __future__ import annotations

import math

import numpy as np

from andrea_corpus.dealer import deal
from andrea_corpus.projection import cap_units, project, to_units
from andrea_proxy.learners import Learner, StepRecord
from curriculum.families import ARMS, CAP, FLOOR, Environment, Floats

BATCH = 8
ROUND = 20
TOKENS = 256
NAMES = tuple(f"arm{i:02d}" for i in range(ARMS))
FLOORS, CAPS = dict.fromkeys(NAMES, FLOOR), dict.fromkeys(NAMES, CAP)
CAP_UNITS = cap_units(CAPS)
NO_LIMITS: dict[str, int | None] = dict.fromkeys(NAMES)
NATS = {name: math.log(2.0) * (2 + i % 4) for i, name in enumerate(NAMES)}
"""Nats per token of one bit per byte: tokens are 2 to 5 bytes long, by arm, and the learner has to undo that."""


def play(env: Environment, learner: Learner, noise: Floats, horizon: int) -> Floats:
    """Pulls of each arm at the end of a run of `horizon` pulls; `noise` as from `noise_table`, the learner new.

    The shares of round k come from a learner that has seen the steps up to the end of round k - 2, those of the
    first two rounds from the prior.
    """
    cursors, credit = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
    windows = dict(zip(NAMES, env.windows.tolist(), strict=True))
    before: list[StepRecord] = []
    last: list[StepRecord] = []
    steps = horizon // BATCH
    for first in range(0, steps, ROUND):
        for record in before:
            learner.observe(record)
        before, last = last, []
        epochs = {name: cursors[name] / windows[name] for name in NAMES}
        weights = dict.fromkeys(NAMES, 1.0) if first < 2 * ROUND else learner.weights(NAMES, {}, epochs)
        units = to_units(project(weights, FLOORS, CAPS).shares)
        for step in range(first, min(first + ROUND, steps)):
            dealt = deal(units, cursors, credit, NO_LIMITS, BATCH, caps=CAP_UNITS)
            true = env.losses(np.array([float(cursors[name]) for name in NAMES])) + env.common(step / steps)
            arms = _losses(dealt.counts, cursors, true, noise)
            last.append(StepRecord(step + 1, TOKENS, arms, {n: cursors[n] / windows[n] for n in arms}))
            cursors, credit = dealt.cursors, dealt.credits
    return np.array([float(cursors[name]) for name in NAMES])


def _losses(
    counts: dict[str, int], cursors: dict[str, int], true: Floats, noise: Floats
) -> dict[str, tuple[int, float, int]]:
    """The arms of a step as an entry has them: (pulls, nats per token, bytes)."""
    arms = {}
    for name, count in counts.items():
        row, start = NAMES.index(name), cursors[name]
        bits = float(true[row]) + math.fsum(noise[row, start : start + count]) / count
        arms[name] = (count, bits * NATS[name], count * TOKENS * (2 + row % 4))
    return arms
