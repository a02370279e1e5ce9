import random
from itertools import pairwise
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus.projection import cap_units, project, to_units
from andrea_rundir.plan import SHARE_UNIT

Limits = tuple[dict[str, float], dict[str, float], dict[str, float]]


def bisection(weights: dict[str, float], floors: dict[str, float], caps: dict[str, float]) -> dict[str, float]:
    """The same point by search: clip(weight * s, floor, cap) is monotone in s."""

    def at(log_s: float) -> dict[str, float]:
        s = 2.0**log_s
        return {n: min(max(weights[n] * s, floors[n]), caps[n]) for n in weights}

    low, high = -1000.0, 1000.0
    for _ in range(300):
        middle = (low + high) / 2
        if fsum(at(middle).values()) < 1:
            low = middle
        else:
            high = middle
    return at(high)


@st.composite
def feasible(draw: st.DrawFn) -> Limits:
    """Weights over many orders of magnitude, and limits with sum of floors <= 1 <= sum of caps."""
    k = draw(st.integers(1, 17))
    names = [f"arm{i}" for i in range(k)]
    unit = st.floats(0, 1)
    weights = {n: 10.0 ** draw(st.floats(-9, 9)) for n in names}
    raw = {n: draw(unit) for n in names}
    load = draw(unit) / max(fsum(raw.values()), 1e-9)
    floors = {n: min(raw[n] * load, 1.0) for n in names}
    caps = {n: floors[n] + draw(unit) * (1 - floors[n]) for n in names}
    if fsum(caps.values()) < 1:
        lift = draw(st.floats(0, 1))
        need = (1 - fsum(caps.values())) / max(fsum(1 - caps[n] for n in names), 1e-300)
        caps = {n: min(1.0, caps[n] + (1 - caps[n]) * min(1.0, need * (1 + lift))) for n in names}
    return weights, floors, caps


@given(feasible())
def test_it_is_the_point_that_bisection_finds(limits: Limits) -> None:
    weights, floors, caps = limits
    got = project(weights, floors, caps)
    if fsum(caps.values()) >= 1:
        expected = bisection(weights, floors, caps)
        assert max(abs(got.shares[n] - expected[n]) for n in weights) <= 1e-12
    assert not got.scaled


def test_it_is_the_point_that_bisection_finds_in_plain_cases() -> None:
    draw = random.Random(7)
    for _ in range(300):
        k = draw.randint(2, 24)
        names = [f"{i:02}" for i in range(k)]
        weights = {n: draw.lognormvariate(0, 2) for n in names}
        floors = {n: draw.random() / k * draw.choice([0, 0.3, 0.9]) for n in names}
        caps = {n: max(floors[n], min(1, draw.random() * 4 / k)) for n in names}
        if fsum(caps.values()) < 1:
            continue
        got, expected = project(weights, floors, caps).shares, bisection(weights, floors, caps)
        assert max(abs(got[n] - expected[n]) for n in names) <= 1e-12


@given(feasible())
def test_every_limit_holds_and_free_arms_keep_their_ratio(limits: Limits) -> None:
    weights, floors, caps = limits
    shares = project(weights, floors, caps).shares
    assert abs(fsum(shares.values()) - 1) <= 1e-9
    assert all(floors[n] - 1e-12 <= shares[n] <= caps[n] + 1e-9 for n in shares)
    free = [n for n in shares if floors[n] + 1e-6 < shares[n] < caps[n] - 1e-6]
    for a, b in pairwise(free):
        assert shares[a] * weights[b] == pytest.approx(shares[b] * weights[a], rel=1e-9)


@given(feasible(), st.randoms(use_true_random=False))
def test_the_order_of_a_mapping_changes_nothing(limits: Limits, shuffler: random.Random) -> None:
    def shuffled(mapping: dict[str, float]) -> dict[str, float]:
        names = list(mapping)
        shuffler.shuffle(names)
        return {n: mapping[n] for n in names}

    first = project(*limits)
    weights, floors, caps = limits
    again = project(shuffled(weights), shuffled(floors), shuffled(caps))
    assert first == again
    assert list(to_units(first.shares).items()) == list(to_units(shuffled(again.shares)).items())


def test_caps_that_sum_under_one_scale_up_together_and_say_so() -> None:
    got = project({"a": 1, "b": 100, "c": 5}, {"a": 0, "b": 0, "c": 0}, {"a": 0.1, "b": 0.1, "c": 0.2})
    assert got.scaled
    assert got.shares == pytest.approx({"a": 0.25, "b": 0.25, "c": 0.5}, abs=1e-15)


def test_scaling_does_not_depend_on_the_order_either() -> None:
    names, zeros = ["a", "b", "c"], dict.fromkeys("abc", 0.0)
    caps = {"a": 0.1, "b": 0.2, "c": 0.3}  # 0.6000000000000001 from the left, 0.6 from the right
    got = [project(zeros, zeros, {n: caps[n] for n in order}) for order in (names, names[::-1])]
    assert got[0] == got[1]


def test_caps_that_miss_one_by_rounding_alone_are_not_called_scaled() -> None:
    names = [f"{i:02}" for i in range(49)]
    caps = dict.fromkeys(names, 1 / 49)
    assert fsum(caps.values()) < 1
    assert not project(dict.fromkeys(names, 1.0), dict.fromkeys(names, 0.0), caps).scaled


def test_an_arm_without_weight_gets_its_floor() -> None:
    got = project({"a": 0, "b": 1, "c": 3}, {"a": 0.2, "b": 0, "c": 0}, dict.fromkeys("abc", 1.0))
    assert got.shares == pytest.approx({"a": 0.2, "b": 0.2, "c": 0.6}, abs=1e-15)


def test_arms_without_weight_take_what_the_others_may_not() -> None:
    got = project({"a": 0, "b": 0, "c": 3}, {"a": 0.0, "b": 0.5, "c": 0}, {"a": 1, "b": 1, "c": 0.3})
    assert got.shares == pytest.approx({"a": 0.2, "b": 0.5, "c": 0.3}, abs=1e-15)


def test_no_weights_at_all_mean_equal_weights() -> None:
    assert project({"a": 0, "b": 0}, {"a": 0, "b": 0}, {"a": 1, "b": 1}).shares == {"a": 0.5, "b": 0.5}


def test_weights_at_the_ends_of_float_do_not_overflow() -> None:
    got = project({"a": 1.7e308, "b": 1.7e308, "c": 5e-324}, dict.fromkeys("abc", 0.0), dict.fromkeys("abc", 1.0))
    assert got.shares["a"] == got.shares["b"] == 0.5


@pytest.mark.parametrize(
    ("weights", "floors", "caps"),
    [
        ({}, {}, {}),
        ({"a": -1.0}, {"a": 0.0}, {"a": 1.0}),
        ({"a": float("nan")}, {"a": 0.0}, {"a": 1.0}),
        ({"a": float("inf")}, {"a": 0.0}, {"a": 1.0}),
        ({"a": 1.0}, {"a": 0.5}, {"a": 0.4}),
        ({"a": 1.0}, {"a": 0.0}, {"a": 0.0}),
        ({"a": 1.0, "b": 1.0}, {"a": 0.6, "b": 0.5}, {"a": 1.0, "b": 1.0}),
    ],
)
def test_what_no_shares_can_satisfy_is_refused(
    weights: dict[str, float], floors: dict[str, float], caps: dict[str, float]
) -> None:
    with pytest.raises(ValueError):
        project(weights, floors, caps)


@given(feasible())
def test_units_sum_to_one_exactly_and_keep_the_limits(limits: Limits) -> None:
    weights, floors, caps = limits
    shares = project(weights, floors, caps).shares
    units, highest = to_units(shares), cap_units(caps)
    assert sum(units.values()) == SHARE_UNIT
    assert all(abs(units[n] - shares[n] * SHARE_UNIT) <= 8 for n in units)
    assert all(units[n] <= highest[n] + 8 for n in units)
    assert all(0 < highest[n] <= SHARE_UNIT or caps[n] == 0 for n in units)


def test_remainders_go_by_size_then_by_name() -> None:
    third = SHARE_UNIT // 3
    assert to_units({"c": 1 / 3, "a": 1 / 3, "b": 1 / 3}) == {"a": third + 1, "b": third, "c": third}
    assert to_units({"a": 0.25 + 0.2 / SHARE_UNIT, "b": 0.75 - 0.2 / SHARE_UNIT})["a"] == SHARE_UNIT // 4
    assert to_units({"a": 0.0, "b": 1.0}) == {"a": 0, "b": SHARE_UNIT}
