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


@pytest.mark.parametrize(
    ("n", "r", "least"),
    [
        (8, 0.0, 0.97),
        (8, 0.5, 0.88),
        (20, 0.0, 0.96),
        (20, 0.5, 0.91),
        (20, 0.8, 0.83),
        (50, 0.5, 0.93),
        (50, 0.8, 0.91),
    ],
)
@pytest.mark.parametrize("slope", [0.0, 2.0])
def test_the_interval_holds_the_mean_as_often_as_it_says(n: int, r: float, least: float, slope: float) -> None:
    """Of branches that stay together and of branches that move apart."""
    rng = np.random.default_rng(n)
    line = slope * (np.arange(n) - (n - 1) / 2)
    verdicts = [judge((np.array(series(rng, n, r)) + line).tolist()) for _ in range(300)]
    held = sum(v is not None and v.low <= 0 <= v.high for v in verdicts)
    assert held / len(verdicts) >= least - 0.05  # two to three standard errors of the share


def test_a_clear_difference_a_doubtful_one_and_none() -> None:
    clear = judge([-0.02, -0.021, -0.019, -0.0205, -0.0195, -0.02, -0.0202, -0.0198])
    assert clear is not None and clear.clear and clear.mean == pytest.approx(-0.02) and clear.high < 0
    apart = judge([-0.087, -0.025, -0.114, -0.103, -0.169, -0.19, -0.271, -0.211, -0.153, -0.2, -0.235, -0.19, -0.156])
    assert apart is not None and apart.clear and apart.high < -0.02
    doubtful = judge([0.02, -0.01, 0.015, -0.02, 0.01, -0.012, 0.02, -0.018])
    assert doubtful is not None and not doubtful.clear and doubtful.low < 0 < doubtful.high
    same = judge([0.0] * 8)
    assert same is not None and (same.low, same.mean, same.high) == (0.0, 0.0, 0.0) and not same.clear
    assert judge([-0.02] * 7) is None


def test_neighbours_that_are_alike_count_for_less() -> None:
    waves = judge([math.sin(i / 4) + i for i in range(40)])
    noise = judge([(-1.0) ** i + i for i in range(40)])
    assert waves is not None and noise is not None
    assert waves.effective == 4.0 and noise.effective == 40.0 and noise.mean == pytest.approx(19.5)
