from __future__ import annotations

import math

import numpy as np
import pytest

from andrea_cli.verdict import judge, student


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (1e4, 1.960)]
)
def test_student_is_what_the_tables_say(freedom: float, t: float) -> None:
    assert student(freedom) == pytest.approx(t, abs=6e-4)


def series(rng: np.random.Generator, n: int, r: float) -> list[float]:
    """A first-order autoregression of mean 0, long under way."""
    values, noise = [0.0], rng.normal(size=n + 100)
    for e in noise:
        values.append(r * values[-1] + e)
    return values[-n:]


@pytest.mark.parametrize(("r", "least"), [(0.0, 0.94), (0.5, 0.90), (0.8, 0.85)])
@pytest.mark.parametrize("n", [8, 20, 50])
def test_the_interval_holds_the_mean_as_often_as_it_says(n: int, r: float, least: float) -> None:
    rng = np.random.default_rng(n)
    verdicts = [judge(series(rng, n, r)) for _ in range(300)]
    held = sum(v is not None and v.low <= 0 <= v.high for v in verdicts)
    assert held / len(verdicts) >= least - 0.035  # two standard errors of the share


def test_a_clear_difference_a_doubtful_one_and_none() -> None:
    clear = judge([-0.02, -0.021, -0.019, -0.0205, -0.0195, -0.02, -0.0202, -0.0198])
    assert clear is not None and clear.clear and clear.mean == pytest.approx(-0.02) and clear.high < 0
    doubtful = judge([0.02, -0.01, 0.015, -0.02, 0.01, -0.012, 0.02, -0.018])
    assert doubtful is not None and not doubtful.clear and doubtful.low < 0 < doubtful.high
    same = judge([0.0] * 6)
    assert same is not None and (same.low, same.mean, same.high) == (0.0, 0.0, 0.0) and not same.clear
    assert judge([-0.02] * 5) is None


def test_neighbours_that_are_alike_count_for_less() -> None:
    rising = judge([i / 10 for i in range(20)])
    assert rising is not None and rising.effective == 2.0 and math.isclose(rising.mean, 0.95)
