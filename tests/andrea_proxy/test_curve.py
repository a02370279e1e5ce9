from __future__ import annotations

import math

import pytest

from andrea_proxy.learners.curve import GRID, Curve
from harness.learning_curves import gauss, power_law


def fed(true, pulls: int, noise: float = 0.0) -> Curve:  # type: ignore[no-untyped-def]
    curve = Curve()
    for n in range(pulls):
        curve.add(1, true(n + 1.0) + noise * gauss(n), n + 1.0)
    return curve


def derivative(depth: float, scale: float, exponent: float, n: float) -> float:
    return depth * exponent / scale * (1.0 + n / scale) ** (-exponent - 1.0)


@pytest.mark.parametrize(("scale", "exponent"), [(40.0, 0.25), (160.0, 0.5), (640.0, 1.0), (100.0, 0.4)])
def test_slope_of_a_power_law_without_noise(scale: float, exponent: float) -> None:
    slope = fed(power_law(1.0, 4.0, scale, exponent), 1000).slope(1000.0)
    assert slope == pytest.approx(derivative(4.0, scale, exponent, 1000.0), rel=0.05)


def test_slope_under_noise_is_within_a_third() -> None:
    slope = fed(power_law(1.0, 4.0, 160.0, 0.5), 3000, noise=0.3).slope(3000.0)
    assert slope == pytest.approx(derivative(4.0, 160.0, 0.5, 3000.0), rel=0.33)


@pytest.mark.parametrize("level", [0.0, 0.5, 8.0])
def test_a_flat_curve_has_no_slope(level: float) -> None:
    assert fed(lambda n: level, 500).slope(500.0) == pytest.approx(0.0, abs=1e-9)


def test_a_rising_curve_has_no_slope_rather_than_a_negative_one() -> None:
    assert fed(lambda n: 2.0 + n / 500.0, 500).slope(500.0) == 0.0


def test_too_little_is_said_to_be_too_little() -> None:
    assert Curve().slope(10.0) is None
    assert fed(power_law(1.0, 4.0, 40.0, 0.5), 2).slope(2.0) is None
    same_count = Curve()
    for _ in range(50):
        same_count.add(1, 3.0, 5.0)
    assert same_count.slope(5.0) is None


def test_the_newer_part_of_a_curve_weighs_more() -> None:
    """A fast start and then a long straight slope, which no power law of the grid has: the slope is the newer one."""
    slope = fed(lambda n: 6.0 * math.exp(-n / 30.0) + 4.0 - 2e-4 * n, 4000).slope(4000.0)
    assert slope == pytest.approx(2e-4, rel=0.5)


def test_the_rest_of_a_curve_is_never_below_zero() -> None:
    """A curve that falls in a straight line to nearly nothing cannot be expected to fall on for long."""
    for (error, slope), (scale, exponent) in zip(fed(lambda n: 1.0 - n / 110.0, 100).fits(100.0), GRID, strict=False):
        assert error >= 0.0
        height = (1.0 + 100.0 / scale) ** -exponent
        assert slope * scale / exponent * (1.0 + 100.0 / scale) * height <= 1.0  # depth * height <= first loss


def test_size_does_not_grow_with_the_run() -> None:
    short, long = fed(power_law(1.0, 4.0, 40.0, 0.5), 50), fed(power_law(1.0, 4.0, 40.0, 0.5), 5000)
    assert len(short.to_state()["shapes"]) == len(long.to_state()["shapes"]) == len(GRID)


def test_state_is_a_copy_and_comes_back_equal() -> None:
    curve = fed(power_law(1.0, 4.0, 40.0, 0.5), 77, noise=0.2)
    state = curve.to_state()
    again = Curve.from_state(state)
    for one in (curve, again):
        one.add(3, 2.0, 90.0)
        one.add(3, 2.1, 93.0)
    assert state == fed(power_law(1.0, 4.0, 40.0, 0.5), 77, noise=0.2).to_state()
    assert curve.to_state() == again.to_state() != state


def test_a_state_of_another_grid_is_refused() -> None:
    state = Curve().to_state()
    with pytest.raises(ValueError, match="another form"):
        Curve.from_state({**state, "shapes": state["shapes"][:-1]})
