"""The original curriculum: UCB1 over smoothed progress ranks the arms, and dice choose how many stay in focus how long.

Score = EMA reward + C * sqrt(ln N / n) (Auer et al. 2002), an arm never pulled first. A focus set is the best of the
ranking, 2 to 6 arms at weight 1 against 0.1 for the others, for 7 to 42 steps; the dice are a hash of (seed, step),
so no generator state is kept. A set that begins and ends inside one round of the plan is never played. C was chosen
on family A of the synthetic suite (`benchmarks/curriculum/freeze.py`). Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import ClassVar

from andrea_proxy.learners.base import Learner, State, prior_of

SHORTEST, LONGEST = 7, 42
FEWEST, MOST = 2, 6


def dice(seed: int, purpose: str, step: int, low: int, high: int) -> int:
    """An even throw from low to high (both included), the same for the same seed, purpose and step."""
    digest = blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return low + int.from_bytes(digest, "little") % (high - low + 1)


class Ucb1(Learner):
    """UCB1 with focus sets of 7 to 42 steps."""

    name = "ucb1"
    bonus: ClassVar[float] = 0.2
    """C, in bits per byte."""
    rest: ClassVar[float] = 0.1
    """Weight out of focus."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.until = 0
        self.size = 0
        self.scores: dict[str, float] = {}

    def step_done(self, step: int) -> None:
        """Throws for a new focus set once `until`, the step that ends the old one, is done."""
        if self.size and step < self.until:
            return
        self.until = step + dice(self.seed, "focus steps", step, SHORTEST, LONGEST)
        self.size = dice(self.seed, "focus size", step, FEWEST, MOST)
        everything = sum(progress.pulls for progress in self.progress.values())
        self.scores = {
            arm: progress.reward + self.bonus * math.sqrt(math.log(everything) / progress.pulls)
            for arm, progress in sorted(self.progress.items())
        }

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        """Priors, those of the arms out of focus times `rest`."""
        prior = prior_of(arms, priors)
        if not self.size:
            return prior
        ranking = sorted(prior, key=lambda arm: (-self.scores.get(arm, math.inf), arm))
        focus = set(ranking[: self.size])
        return {arm: weight * (1.0 if arm in focus else self.rest) for arm, weight in prior.items()}

    def figures(self, arm: str) -> dict[str, float]:
        """Adds `score`, as ranked for the focus set in force."""
        score = self.scores.get(arm)
        return super().figures(arm) if score is None else {**super().figures(arm), "score": score}

    def memory(self) -> State:
        """The focus set's end, size and ranking."""
        return {"until": self.until, "size": self.size, "scores": dict(self.scores)}

    def recall(self, state: State) -> None:
        """What `memory` gave."""
        self.until, self.size = state["until"], state["size"]
        self.scores = dict(state["scores"])
