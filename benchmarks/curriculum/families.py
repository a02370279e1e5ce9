"""Three families of synthetic runs whose best mixture can be computed: what the learners are compared on.

An arm's true loss (bits per byte) depends on the pulls of all arms only through its effective count: own pulls, repeats
decaying, plus a part of its group's. All three families are convex in the pulls, so the optimum is known to a
certificate (`optimum`). A: power laws. C: A with two noise and two repetitive decoys. D: a fast exponential beside a
slow power law, repeats that fade faster than the learner believes, and a learning-rate schedule added to every loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ARMS = 16
FLOOR, CAP = 0.01, 0.30
MOST_PULLS = 20_000
FAMILIES = ("A", "C", "D")


@dataclass(frozen=True)
class Environment:
    """One synthetic run; arrays are [ARMS]. `common` [0, 1) -> bits per byte added to every observed loss."""

    rest: Floats
    depth: Floats
    scale: Floats
    exponent: Floats
    fast_depth: Floats
    fast_scale: Floats
    windows: Floats
    scatter: Floats
    transfer: Floats  # [ARMS, ARMS]: what a count of the column is worth to the row
    decay: float
    swing: float

    def counts(self, pulls: Floats) -> Floats:
        """Own counts after `pulls` pulls: linear for one epoch, then fading with `decay` epochs."""
        repeats = np.maximum(pulls / self.windows - 1.0, 0.0)
        first = np.minimum(pulls, self.windows)
        return np.asarray(first + self.windows * self.decay * -np.expm1(-repeats / self.decay))

    def losses(self, pulls: Floats) -> Floats:
        """True loss of every arm, bits per byte."""
        n = self.transfer @ self.counts(pulls)
        slow = self.depth * (1.0 + n / self.scale) ** -self.exponent
        return np.asarray(self.rest + slow + self.fast_depth * np.exp(-n / self.fast_scale))

    def objective(self, pulls: Floats) -> float:
        """What a run is judged by: the mean over arms of the true loss at its end."""
        return float(self.losses(pulls).mean())

    def gradient(self, pulls: Floats) -> Floats:
        """Of the objective, per pull."""
        n = self.transfer @ self.counts(pulls)
        slow = -self.depth * self.exponent / self.scale * (1.0 + n / self.scale) ** (-self.exponent - 1.0)
        steep = slow - self.fast_depth / self.fast_scale * np.exp(-n / self.fast_scale)
        worth = np.exp(-np.maximum(pulls / self.windows - 1.0, 0.0) / self.decay)
        return np.asarray((steep @ self.transfer) * worth / ARMS)

    def common(self, done: float) -> float:
        """What the learning rate adds to every observed loss when `done` of the run is over: warm-up, then cosine."""
        rate = done / 0.05 if done < 0.05 else 0.55 + 0.45 * np.cos(np.pi * (done - 0.05) / 0.95)
        return self.swing * float(rate)


def environment(family: str, index: int) -> Environment:
    """Number `index` of a family; the same for every learner, noise and horizon."""
    draw = np.random.default_rng([FAMILIES.index(family), index])
    rest = draw.uniform(0.6, 2.2, ARMS)
    depth = np.exp(draw.normal(np.log(4.0), 0.4, ARMS))
    scale = np.exp(draw.uniform(np.log(30.0), np.log(1000.0), ARMS))
    exponent = draw.uniform(0.2, 0.8, ARMS)
    windows = np.exp(draw.normal(np.log(3000.0), 1.0, ARMS))
    group = draw.permutation(ARMS) // 4
    transfer = np.where(group[:, None] == group[None, :], draw.uniform(0.3, 0.6), 0.0)
    np.fill_diagonal(transfer, 1.0)
    scatter = np.ones(ARMS)
    fast_depth, fast_scale, decay, swing = np.zeros(ARMS), np.ones(ARMS), 6.0, 0.0
    if family == "C":
        noise, repetitive = draw.permutation(ARMS)[:4].reshape(2, 2)
        rest[noise], depth[noise], scatter[noise] = draw.uniform(5.0, 7.0, 2), 0.0, 2.0
        rest[repetitive], depth[repetitive] = draw.uniform(0.02, 0.1, 2), draw.uniform(1.0, 3.0, 2)
        scale[repetitive], exponent[repetitive] = draw.uniform(3.0, 10.0, 2), 2.0
    if family == "D":
        part = draw.uniform(0.3, 0.7, ARMS)
        fast_depth, depth = part * depth, (1.0 - part) * depth
        fast_scale = np.exp(draw.uniform(np.log(10.0), np.log(200.0), ARMS))
        decay, swing = 3.0, draw.uniform(0.1, 0.3)
    return Environment(rest, depth, scale, exponent, fast_depth, fast_scale, windows, scatter, transfer, decay, swing)


def noise_table(family: str, index: int, level: float, env: Environment) -> Floats:
    """[ARMS, n]: what is added to the loss of an arm's c-th pull, so that learners meet the same windows."""
    draw = np.random.default_rng([77, FAMILIES.index(family), index])
    pulls = int(MOST_PULLS * CAP) + 1000
    return np.asarray(draw.standard_normal((ARMS, pulls)) * (level * env.scatter)[:, None])


def optimum(env: Environment, horizon: int) -> tuple[Floats, float]:
    """Best pulls under floor and cap, and a bound on how far their objective can lie above the true optimum.

    Frank-Wolfe with pairwise moves and exact line search; the bound is its duality gap.
    """
    low, high = np.full(ARMS, FLOOR * horizon), np.full(ARMS, CAP * horizon)
    pulls = np.full(ARMS, horizon / ARMS)
    gap = np.inf
    for _ in range(20_000):
        slope = env.gradient(pulls)
        gap = float(slope @ (pulls - _corner(slope, low, high, horizon)))
        if gap < 1e-7:
            break
        gains = np.where(pulls < high - 1e-9, slope, np.inf)
        pains = np.where(pulls > low + 1e-9, slope, -np.inf)
        to, source = int(gains.argmin()), int(pains.argmax())
        most = min(high[to] - pulls[to], pulls[source] - low[source])
        pulls = _best_move(env, pulls, to, source, most)
    return pulls, gap


def _corner(slope: Floats, low: Floats, high: Floats, horizon: int) -> Floats:
    """The feasible pulls that a linear objective likes best."""
    corner, left = low.copy(), horizon - float(low.sum())
    for arm in np.argsort(slope):
        corner[arm] += min(left, high[arm] - low[arm])
        left -= corner[arm] - low[arm]
    return corner


def _best_move(env: Environment, pulls: Floats, to: int, source: int, most: float) -> Floats:
    """Bisection on the derivative along moving pulls from `source` to `to`."""
    move = np.zeros(ARMS)
    move[to], move[source] = 1.0, -1.0
    near, far = 0.0, most
    if float(env.gradient(pulls + far * move) @ move) <= 0.0:
        return pulls + far * move
    for _ in range(40):
        middle = 0.5 * (near + far)
        near, far = (middle, far) if float(env.gradient(pulls + middle * move) @ move) < 0.0 else (near, middle)
    return pulls + near * move
