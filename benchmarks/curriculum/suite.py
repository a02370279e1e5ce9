"""Cells, learners and statistics of the suite; `run.py` prints them, `freeze.py` chooses constants with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from andrea_proxy.learners import Learner
from andrea_proxy.learners.slope import Slope
from andrea_proxy.learners.ucb1 import Ucb1
from andrea_proxy.learners.uniform import Uniform
from curriculum.contenders import AdoLike, Exp3S, LossLevel, PlainSlope, Proportional
from curriculum.families import ARMS, FAMILIES, Environment, Floats, environment, noise_table, optimum
from curriculum.simulation import NAMES, play

ENVIRONMENTS = 40
NOISES = (0.15, 0.45)
HORIZONS = (6_000, 20_000)
T_QUANTILE = 2.0227
"""97.5 % point of Student's t with 39 degrees of freedom."""

Maker = Callable[[Environment], Learner]

LEARNERS: dict[str, Maker] = {
    "slope": lambda env: Slope(),
    "plain slope": lambda env: PlainSlope(),
    "ado-like": lambda env: AdoLike(NAMES),
    "ucb1": lambda env: Ucb1(1),
    "exp3s": lambda env: Exp3S(NAMES),
    "uniform": lambda env: Uniform(),
    "loss-level": lambda env: LossLevel(),
    "proportional": lambda env: Proportional(dict(zip(NAMES, env.windows.tolist(), strict=True))),
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
        reached = known.env.objective(play(known.env, maker(known.env), noise, cell.horizon))
        shares.append(100.0 * (known.uniform - reached) / (known.uniform - known.best))
    return np.array(shares)


def lead(ours: Floats, theirs: Floats) -> tuple[float, float]:
    """Mean paired difference and the half width of its 95 % interval."""
    difference = ours - theirs
    return float(difference.mean()), T_QUANTILE * float(difference.std(ddof=1)) / len(difference) ** 0.5
