"""Cells, learners and statistics of the suite; `run.py` prints them, `freeze.py` chooses constants with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from andrea_proxy.learners import Learner
from andrea_proxy.learners.slope import Slope
from andrea_proxy.learners.ucb1 import Ucb1
from andrea_proxy.learners.uniform import Uniform
from curriculum.contenders import AdoLike, Exp3S, LossLevel, PlainSlope, Proportional
from curriculum.families import ARMS, FAMILIES, Environment, Floats, environment, noise_table, optimum
from curriculum.simulation import BATCH, NAMES, Synthetic, play

ENVIRONMENTS = 40
NOISES = (0.15, 0.45)
HORIZONS = (6_000, 20_000)
T_QUANTILES = {5: 2.7764, 40: 2.0227}
"""97.5 % point of Student's t by the number of pairs, one more than its degrees of freedom."""

Maker = Callable[[Mapping[str, float]], Learner]
"""Makes a learner that has seen nothing, given each arm's windows."""

LEARNERS: dict[str, Maker] = {
    "slope": lambda windows: Slope(),
    "plain slope": lambda windows: PlainSlope(),
    "ado-like": lambda windows: AdoLike(tuple(windows)),
    "ucb1": lambda windows: Ucb1(1),
    "exp3s": lambda windows: Exp3S(tuple(windows)),
    "uniform": lambda windows: Uniform(),
    "loss-level": lambda windows: LossLevel(),
    "proportional": Proportional,
}


@dataclass(frozen=True)
class Cell:
    """One family at one horizon (pulls) and one noise (bits per byte, standard deviation of one pull's loss)."""

    family: str
    horizon: int
    noise: float

    def __str__(self) -> str:
        return f"{self.family} {self.horizon:>6,} {self.noise:.2f}"


CELLS = tuple(Cell(f, h, n) for f in FAMILIES for h in HORIZONS for n in NOISES)


@dataclass(frozen=True)
class Yardstick:
    """An environment with the objective of the uniform and of the best mixture."""

    env: Environment
    uniform: float
    best: float
    doubt: float  # how far below `best` the true optimum can lie, as a part of the gap


@cache
def yardstick(family: str, index: int, horizon: int) -> Yardstick:
    """Uniform means exactly horizon / ARMS pulls of each arm."""
    env = environment(family, index)
    pulls, bound = optimum(env, horizon)
    uniform, best = env.objective(np.full(ARMS, horizon / ARMS)), env.objective(pulls)
    return Yardstick(env, uniform, best, bound / (uniform - best))


def closed(cell: Cell, maker: Maker, environments: int = ENVIRONMENTS) -> Floats:
    """Per cent of the gap from uniform to optimum that a learner closes, in each environment of a cell."""
    shares = []
    for index in range(environments):
        known = yardstick(cell.family, index, cell.horizon)
        noise = noise_table(cell.family, index, cell.noise, known.env)
        world = Synthetic(known.env, noise, cell.horizon // BATCH)
        pulls = play(world, maker(world.windows), cell.horizon // BATCH)
        reached = known.env.objective(np.array([float(pulls[name]) for name in NAMES]))
        shares.append(100.0 * (known.uniform - reached) / (known.uniform - known.best))
    return np.array(shares)


def lead(ours: Floats, theirs: Floats) -> tuple[float, float]:
    """Mean paired difference and the half width of its 95 % interval."""
    difference = ours - theirs
    half = T_QUANTILES[len(difference)] * float(difference.std(ddof=1)) / len(difference) ** 0.5
    return float(difference.mean()), half
