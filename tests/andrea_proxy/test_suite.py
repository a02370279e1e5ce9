"""The synthetic suite itself: its optimum is one, its learners meet the same runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from curriculum.families import ARMS, CAP, FAMILIES, FLOOR, environment, noise_table, optimum
from curriculum.run import missed
from curriculum.suite import LEARNERS, Cell, closed, lead, yardstick


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_is_the_objectives(family: str) -> None:
    env = environment(family, 3)
    pulls = np.linspace(100.0, 4000.0, ARMS)
    for arm in range(ARMS):
        step = np.zeros(ARMS)
        step[arm] = 1e-2
        slope = (env.objective(pulls + step) - env.objective(pulls - step)) / 2e-2
        assert env.gradient(pulls)[arm] == pytest.approx(slope, rel=1e-4, abs=1e-11)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_feasible_mixture_is_better_than_the_optimum(family: str) -> None:
    env, horizon = environment(family, 5), 6000
    pulls, bound = optimum(env, horizon)
    assert pulls.sum() == pytest.approx(horizon)
    assert pulls.min() >= FLOOR * horizon - 1e-6 and pulls.max() <= CAP * horizon + 1e-6
    assert bound < 1e-6
    draw = np.random.default_rng(1)
    for _ in range(200):
        shares = FLOOR + (1.0 - ARMS * FLOOR) * draw.dirichlet(np.full(ARMS, 2.0))
        if shares.max() <= CAP:
            assert env.objective(shares * horizon) >= env.objective(pulls) - bound
    for _ in range(200):  # and next to it
        to, source = draw.integers(ARMS, size=2)
        near = pulls.copy()
        near[to] += 5.0
        near[source] -= 5.0
        if near.min() >= FLOOR * horizon and near.max() <= CAP * horizon:
            assert env.objective(near) >= env.objective(pulls) - bound


def test_environments_are_the_same_each_time_and_noise_scales() -> None:
    one, other = environment("D", 2), environment("D", 2)
    assert np.array_equal(one.transfer, other.transfer) and np.array_equal(one.scale, other.scale)
    quiet, loud = noise_table("C", 2, 0.15, one), noise_table("C", 2, 0.45, one)
    assert np.allclose(3.0 * quiet, loud)


def test_the_schedule_warms_up_and_comes_down() -> None:
    env = environment("D", 2)
    assert env.common(0.0) == 0.0
    assert env.common(0.05) == pytest.approx(env.swing)
    assert env.common(1.0) == pytest.approx(0.1 * env.swing)
    assert environment("A", 2).common(0.3) == 0.0


def test_uniform_closes_nothing_and_slope_most() -> None:
    cell = Cell("C", 6000, 0.45)
    results = {name: closed(cell, LEARNERS[name], 4) for name in ("uniform", "slope", "plain slope")}
    assert np.abs(results["uniform"]).max() < 0.5
    assert results["slope"].mean() > results["plain slope"].mean() > 35.0
    assert yardstick("C", 0, 6000).doubt < 1e-3


def test_missed_bars_are_said() -> None:
    cell = Cell("A", 6000, 0.15)
    good, plain = np.full(40, 60.0), np.full(40, 40.0) + np.arange(40) % 3
    assert missed(cell, {"slope": good, "plain slope": plain}) == []
    bad = np.full(40, 20.0)
    bad[:4] = -30.0
    said = " ".join(missed(cell, {"slope": bad, "plain slope": plain}))
    assert "not 35" in said and "in 36 environments" in said and "below -25" in said and "over plain slope" in said
    mean, half = lead(good, plain)
    assert mean == pytest.approx(19.025, abs=1e-3) and 0.2 < half < 0.3
