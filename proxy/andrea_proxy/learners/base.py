"""What every learner is: a pure fold over recorded steps that can be asked for weights.

`observe` takes one step at a time, over the numbers as they stand in history; `weights` changes nothing. So a
learner's state is a function of the steps it has seen, in order, and can be rebuilt bit for bit: plain Python
floats, arms in sorted order, no clock, no generator, no numpy. Writes no file; imports the standard library only.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

State = dict[str, Any]
"""JSON-able: dicts, lists, strings, ints and finite floats only."""

MOST_BITS = 64.0
"""Bits per byte; a diverging loss says no more than this (a guess among 256 bytes costs 8)."""
EMA_RATE = 0.02
"""A pull's weight in an arm's running figures: they look back about 50 pulls."""
SPREADS = 6.0
"""A loss further from the arm's running mean than this many mean absolute deviations is pulled in to there."""
BURN_IN = 8
"""Records of an arm before spikes can be told from its ordinary scatter."""
LEAST_SPREAD = 0.01
"""Bits per byte; an arm with no scatter at all must still be able to move."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One entry of history as a learner sees it.

    `arms` maps a name to (pulls, mean loss in nats per token or None, bytes of those pulls), as in `.loss.json`.
    `sequence_tokens` is the number of predicted tokens in one sequence. `epochs` says how many times each arm's
    windows had been gone through when the step began (cursor / windows); an arm that is missing counts as new.
    """

    step: int
    sequence_tokens: int
    arms: Mapping[str, Sequence[float | None]]
    epochs: Mapping[str, float] = field(default_factory=dict)


def bits_per_byte(loss: float | None, tokens: int, size: float) -> float | None:
    """Mean loss (nats per token) over `tokens` tokens of `size` bytes, in bits per byte, 0 to MOST_BITS.

    None where there is nothing usable: no loss, one that is not finite, no bytes.
    """
    if loss is None or not math.isfinite(loss) or not size > 0.0:
        return None
    return min(max(loss * tokens / (size * math.log(2.0)), 0.0), MOST_BITS)


@dataclass(slots=True)
class Progress:
    """Running figures of one arm, in bits per byte; `reward` is how far its newest losses lie below its own mean.

    With a loss that falls by g a pull, `reward` settles at g / EMA_RATE: progress, never the level of a loss.
    """

    pulls: int = 0
    records: int = 0
    ema: float = 0.0
    spread: float = 0.0
    reward: float = 0.0

    def add(self, pulls: int, bits: float | None) -> float | None:
        """Takes one step's pulls; returns the loss with a spike pulled in, or None if the step had none."""
        if pulls <= 0:
            return None
        self.pulls += pulls
        if bits is None:
            return None
        if self.records >= BURN_IN:
            reach = SPREADS * max(self.spread, LEAST_SPREAD)
            bits = min(max(bits, self.ema - reach), self.ema + reach)
        self.records += 1
        drop = self.ema - bits if self.records > 1 else 0.0
        rate = max(1.0 - (1.0 - EMA_RATE) ** pulls, 1.0 / self.records)
        self.ema -= rate * drop if self.records > 1 else -bits
        self.spread += rate * (abs(drop) - self.spread)
        self.reward += rate * (drop - self.reward)
        return bits


class Learner(ABC):
    """Turns recorded steps into weights. Subclasses add what they learn in `learn` and keep it in `memory`."""

    name: ClassVar[str]

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.progress: dict[str, Progress] = {}

    def observe(self, record: StepRecord) -> None:
        """Folds one step in. Steps come once each and in order; the caller sees to that."""
        for arm in sorted(record.arms):
            pulls, loss, size = record.arms[arm]
            count = int(pulls or 0)
            if count <= 0:
                continue
            bits = bits_per_byte(loss, count * record.sequence_tokens, size or 0.0)
            if (progress := self.progress.get(arm)) is None:
                progress = self.progress[arm] = Progress()
            bits = progress.add(count, bits)
            self.learn(arm, count, bits, record.epochs.get(arm, 0.0))
        self.step_done(record.step)

    def learn(self, arm: str, pulls: int, bits: float | None, epochs: float) -> None:  # noqa: B027 - optional
        """One arm's part of a step: its pulls, bits per byte (None: nothing usable) and epochs before the step."""

    def step_done(self, step: int) -> None:  # noqa: B027 - optional
        """Called once after the arms of a step."""

    @abstractmethod
    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        """A positive finite weight for each of `arms`, by name, in no unit; the projection makes shares of them.

        `priors` are the policy's (a missing one is 1), `epochs` as in StepRecord at the time of asking. Pure.
        """

    def figures(self, arm: str) -> dict[str, float]:
        """What `.state.json` shows of an arm: at least `reward` and `ema`, in bits per byte."""
        progress = self.progress.get(arm, Progress())
        return {"pulls": progress.pulls, "reward": progress.reward, "ema": progress.ema}

    def to_state(self) -> State:
        """All that the fold remembers."""
        progress = {arm: asdict(self.progress[arm]) for arm in sorted(self.progress)}
        return {"learner": self.name, "seed": self.seed, "progress": progress, **self.memory()}

    def memory(self) -> State:
        """What a subclass adds to the state."""
        return {}

    def recall(self, state: State) -> None:  # noqa: B027 - optional
        """Takes back what `memory` gave."""

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The learner that `to_state` described; KeyError, TypeError or ValueError for anything else."""
        if state["learner"] != cls.name:
            raise ValueError(f"state of learner {state['learner']!r}, not {cls.name!r}")
        learner = cls(state["seed"])
        learner.progress = {arm: Progress(**figures) for arm, figures in state["progress"].items()}
        learner.recall(state)
        return learner


def prior_of(arms: Sequence[str], priors: Mapping[str, float]) -> dict[str, float]:
    """The policy's own weights of `arms`, in sorted order."""
    return {arm: float(priors.get(arm, 1.0)) for arm in sorted(arms)}
