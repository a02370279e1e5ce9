"""The learners that `slope` is compared with, as their papers or released code have them, behind the same interface.

Each is used under the same floors, caps, dealer, lag and rounds as the shipped ones. What a learner has to tune was
tuned on family A, as for `slope` (`freeze.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

from andrea_proxy.learners import Learner
from andrea_proxy.learners.base import StepRecord, prior_of
from andrea_proxy.learners.curve import Curve
from andrea_proxy.learners.slope import LEAST_GAIN, Slope, repeat_value


class Proportional(Learner):
    """Weights equal to the arms' sizes."""

    name = "proportional"

    def __init__(self, sizes: Mapping[str, float]) -> None:
        super().__init__()
        self.sizes = sizes

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        return {arm: self.sizes[arm] for arm in sorted(arms)}


class LossLevel(Learner):
    """Online data mixing (Albalak et al. 2023, arXiv 2312.02406) by its released rule.

    EMA (0.9) of exp(loss in nats per token), normalised, mixed with eps = min(1/K, sqrt(ln K / (K t))) of uniform.
    """

    name = "loss-level"
    keep = 0.9

    def __init__(self) -> None:
        super().__init__()
        self.level: dict[str, float] = {}
        self.steps = 0

    def observe(self, record: StepRecord) -> None:
        super().observe(record)
        for arm in sorted(record.arms):
            loss = record.arms[arm][1]
            if loss is not None:
                value = math.exp(min(loss, 20.0))
                self.level[arm] = self.keep * self.level.get(arm, value) + (1.0 - self.keep) * value
        self.steps += 1

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        if not all(arm in self.level for arm in arms):
            return dict.fromkeys(sorted(arms), 1.0)
        k = len(arms)
        eps = min(1.0 / k, math.sqrt(math.log(k) / (k * max(self.steps, 1))))
        total = math.fsum(self.level[arm] for arm in arms)
        return {arm: (1.0 - k * eps) * self.level[arm] / total + eps for arm in sorted(arms)}


class Exp3S(Learner):
    """Graves et al. 2017 (arXiv 1704.03003): Exp3.S over loss drops rescaled to [-1, 1] between running quantiles."""

    name = "exp3s"
    rate = 0.1
    epsilon = 0.05

    def __init__(self, arms: Sequence[str]) -> None:
        super().__init__()
        self.log_weights = dict.fromkeys(sorted(arms), 0.0)
        self.last: dict[str, float] = {}
        self.drops: deque[float] = deque(maxlen=500)
        self.steps = 0
        self.rewards: list[tuple[str, int, float]] = []

    def learn(self, arm: str, pulls: int, bits: float | None, epochs: float) -> None:
        if bits is None:
            return
        if arm in self.last:
            drop = self.last[arm] - bits
            self.drops.append(drop)
            self.rewards.append((arm, pulls, drop))
        self.last[arm] = bits

    def step_done(self, step: int) -> None:
        """One Exp3.S update (Auer et al. 2002) with importance weights from its own mixture."""
        self.steps += 1
        mixture = self.weights(tuple(self.log_weights), {}, {})
        pulled = sum(pulls for _, pulls, _ in self.rewards)
        ranked = sorted(self.drops)
        for arm, pulls, drop in self.rewards:
            low, high = ranked[len(ranked) // 5], ranked[(4 * len(ranked)) // 5]
            scaled = min(max(2.0 * (drop - low) / (high - low) - 1.0, -1.0), 1.0) if high > low else 0.0
            self.log_weights[arm] += self.rate * scaled * pulls / (pulled * mixture[arm])
        self.rewards = []
        top = max(self.log_weights.values())
        flat = {arm: math.exp(value - top) for arm, value in self.log_weights.items()}
        alpha, total, k = 1.0 / self.steps, math.fsum(flat.values()), len(flat)
        for arm, value in flat.items():
            mixed = value if alpha >= 1.0 else (1.0 - alpha) * value + alpha / (k - 1) * (total - value)
            self.log_weights[arm] = math.log(mixed)

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        top = max(self.log_weights[arm] for arm in arms)
        flat = {arm: math.exp(self.log_weights[arm] - top) for arm in sorted(arms)}
        total, k = math.fsum(flat.values()), len(flat)
        return {arm: (1.0 - self.epsilon) * value / total + self.epsilon / k for arm, value in flat.items()}


class WholeCurve(Curve):
    """A fit to all records alike, the oldest too."""

    fade = 0.0
    __slots__ = ()


class PlainSlope(Slope):
    """Undamped power-law slope: the best fit's slope on the arm's own pulls, share proportional to it."""

    name = "plain slope"
    transfer = 0.0
    curve = WholeCurve

    def speeds(self, arms: Sequence[str], epochs: Mapping[str, float]) -> dict[str, float] | None:
        """Drop a pull by each arm's best fit; None until every arm has one."""
        speeds = {}
        for arm in sorted(arms):
            fits = self.curves[arm].fits(self.count(self.curves[arm])) if arm in self.curves else []
            if not fits:
                return None
            speeds[arm] = min(fits)[1] * repeat_value(epochs.get(arm, 0.0))
        return speeds

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        prior = prior_of(arms, priors)
        speeds = self.speeds(arms, epochs)
        best = max(speeds.values()) if speeds else 0.0
        if speeds is None or best <= 0.0:
            return prior
        return {arm: prior[arm] * max(speed / best, LEAST_GAIN) for arm, speed in speeds.items()}


class AdoLike(PlainSlope):
    """ADO (Jiang et al. 2024, arXiv 2410.11820): speed times the square root of the recent share, smoothed by 0.9.

    Updated every 20 steps here (a round), where the original refits every 1,000 and mixes every step.
    """

    name = "ado-like"
    keep = 0.9

    def __init__(self, arms: Sequence[str]) -> None:
        super().__init__()
        self.share = {arm: 1.0 / len(arms) for arm in sorted(arms)}
        self.recent = dict(self.share)
        self.seen: dict[str, float] = {}

    def observe(self, record: StepRecord) -> None:
        self.seen.update(record.epochs)
        super().observe(record)

    def step_done(self, step: int) -> None:
        if step % 20:
            return
        speeds = self.speeds(tuple(self.share), self.seen)
        if speeds is None:
            return
        wanted = {arm: math.sqrt(self.recent[arm]) * speed for arm, speed in speeds.items()}
        total = math.fsum(wanted.values())
        for arm in wanted if total > 0.0 else ():
            self.share[arm] = self.keep * self.share[arm] + (1.0 - self.keep) * wanted[arm] / total
            self.share[arm] = max(self.share[arm], 1e-6)
            self.recent[arm] = self.keep * self.recent[arm] + (1.0 - self.keep) * self.share[arm]

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        return {arm: self.share[arm] for arm in sorted(arms)}
