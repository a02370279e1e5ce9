"""The default learner: pulls go where a pull still teaches most.

Share = prior * gain ** 3, gain = the likelihood-weighted power-law slope of the arm's curve (`curve.py`) times
what a repeat is worth. The count of a curve is the arm's own pulls, repeats discounted, plus a part of everybody
else's, since sources teach each other. The constants were chosen on family A of the synthetic suite alone
(`benchmarks/curriculum`). Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from andrea_proxy.learners.base import Learner, State, prior_of
from andrea_proxy.learners.curve import Curve

EPOCH_DECAY = 6.0
LEAST_GAIN = 1e-3
"""Of the best arm's gain: an arm that teaches nothing keeps a weight, so that it is ranked among its like."""


def repeat_value(epochs: float) -> float:
    """What a pull is worth after `epochs` passes over its arm, against a first sight (DESIGN 6, epoch limit)."""
    return math.exp(-max(epochs - 1.0, 0.0) / EPOCH_DECAY)


class Slope(Learner):
    """Share proportional to prior * gain ** 3. An arm that is too new to have a slope counts as the best one."""

    name = "slope"
    exponent: ClassVar[float] = 3.0
    transfer: ClassVar[float] = 0.32
    """What a pull of another arm counts, divided by the number of arms seen: 2 % at 16 arms (docs/adr/0007).

    A part that did not shrink with the number of arms would come to outweigh an arm's own pulls; the fit then sees
    progress per step instead of per pull, and what is pulled most looks best for ever.
    """
    curve: ClassVar[type[Curve]] = Curve

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.pool = 0.0
        self.curves: dict[str, Curve] = {}

    def learn(self, arm: str, pulls: int, bits: float | None, epochs: float) -> None:
        """Counts advance with every pull; the curve takes only what has a loss."""
        if (curve := self.curves.get(arm)) is None:  # not setdefault: a curve is made of 32 lists
            curve = self.curves[arm] = self.curve()
        worth = pulls * repeat_value(epochs)
        shared = worth * self.transfer / len(self.curves)
        self.pool += shared
        curve.count += worth - shared
        if bits is not None:
            curve.add(pulls, bits, self.count(curve))

    def count(self, curve: Curve) -> float:
        """The n of a curve: own pulls and the others' part. Never falls, whatever arms come and go."""
        return curve.count + self.pool

    def gain(self, arm: str, epochs: float) -> float | None:
        """Expected drop of the arm's loss by its next pull, bits per byte; None while too little is known."""
        curve = self.curves.get(arm)
        slope = curve.slope(self.count(curve)) if curve else None
        return None if slope is None else slope * repeat_value(epochs)

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        """Priors alone until some arm has a positive gain."""
        gains = {arm: self.gain(arm, epochs.get(arm, 0.0)) for arm in sorted(arms)}
        best = max((gain for gain in gains.values() if gain is not None), default=0.0)
        prior = prior_of(arms, priors)
        if best <= 0.0:
            return prior
        return {
            arm: prior[arm] * max(1.0 if gain is None else gain / best, LEAST_GAIN) ** self.exponent
            for arm, gain in gains.items()
        }

    def figures(self, arm: str) -> dict[str, float]:
        """Adds `gain`: bits per byte a fresh pull is expected to take off (0 while unknown)."""
        return {**super().figures(arm), "gain": self.gain(arm, 0.0) or 0.0}

    def memory(self) -> State:
        """The curves, and what all arms share."""
        return {"pool": self.pool, "curves": {arm: self.curves[arm].to_state() for arm in sorted(self.curves)}}

    def recall(self, state: State) -> None:
        """What `memory` gave."""
        self.pool = float(state["pool"])
        self.curves = {arm: self.curve.from_state(curve) for arm, curve in state["curves"].items()}
