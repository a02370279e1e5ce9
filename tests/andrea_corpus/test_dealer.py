import random
from fractions import Fraction
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea_corpus.dealer import Dealt, Exhausted, cursor_limit, deal, spread
from andrea_corpus.projection import cap_units, project, to_units
from andrea_rundir.plan import SHARE_UNIT


def harmonic(k: int) -> Fraction:
    return sum((Fraction(1, i) for i in range(1, k + 1)), Fraction(0))


def unlimited(names: list[str]) -> dict[str, int | None]:
    return dict.fromkeys(names)


def whole(names: list[str]) -> dict[str, int]:
    return dict.fromkeys(names, SHARE_UNIT)


def split(names: list[str], weights: list[int]) -> dict[str, int]:
    """Shares in the ratio of the weights."""
    return to_units({n: max(w, 0) + 1e-12 for n, w in zip(names, weights, strict=True)})


def one(shares: dict[str, int], credit: dict[str, int]) -> Dealt:
    return deal(shares, {}, credit, unlimited(list(shares)), 1, caps=whole(list(shares)))


names_of = st.integers(1, 12).map(lambda k: [f"arm{i:02}" for i in range(k)])


@given(names_of, st.data())
def test_credits_sum_to_zero_and_count_every_pull(names: list[str], data: st.DataObject) -> None:
    shares = split(names, data.draw(st.lists(st.integers(0, 50), min_size=len(names), max_size=len(names))))
    pulls = data.draw(st.integers(1, 80))
    dealt = deal(shares, {}, {}, unlimited(names), pulls, caps=whole(names))
    assert sum(dealt.counts.values()) == pulls
    assert dealt.cursors == {n: dealt.counts.get(n, 0) for n in names}
    assert dealt.credits == {n: pulls * shares[n] - SHARE_UNIT * dealt.counts.get(n, 0) for n in names}
    assert sum(dealt.credits.values()) == 0


@given(names_of, st.data())
def test_batches_of_any_size_deal_the_same_pulls(names: list[str], data: st.DataObject) -> None:
    shares = split(names, data.draw(st.lists(st.integers(0, 50), min_size=len(names), max_size=len(names))))
    limits: dict[str, int | None] = {n: data.draw(st.none() | st.integers(0, 9)) for n in names}
    limits[names[0]] = None
    caps = cap_units({n: data.draw(st.floats(0.1, 1)) for n in names})
    at_once = deal(shares, {}, {}, limits, 24, caps=caps)
    cursors, credit, counts = dict[str, int](), dict[str, int](), dict.fromkeys(names, 0)
    for size in (1, 7, 4, 12):
        step = deal(shares, cursors, credit, limits, size, caps=caps)
        cursors, credit = step.cursors, step.credits
        counts = {n: counts[n] + step.counts.get(n, 0) for n in names}
    assert (at_once.cursors, at_once.credits) == (cursors, credit)
    assert at_once.counts == {n: c for n, c in sorted(counts.items()) if c}


def drawn(draw: random.Random, names: list[str]) -> dict[str, int]:
    """Shares: few are large, many are equal or 0."""
    return split(names, [draw.choice([0, 0, 1, 1, 2, 9]) for _ in names])


@settings(max_examples=30)
@given(names_of, st.integers())
def test_any_window_is_within_h_k_while_the_active_arms_stay(names: list[str], seed: int) -> None:
    """Whatever the shares do from pull to pull: after a pull -1 < credit <= H_K - 1."""
    credit, draw = dict[str, int](), random.Random(seed)
    bound = (harmonic(len(names)) - 1) * SHARE_UNIT
    for _ in range(100):
        shares = drawn(draw, names)
        credit = one(shares, credit).credits
        assert min(credit.values()) > -SHARE_UNIT
        assert max(credit.values()) <= bound


@pytest.mark.parametrize("k", [2, 5, 16])
def test_the_adversary_of_the_cup_game_reaches_the_bound_and_no_more(k: int) -> None:
    """Fill the cups that were not emptied, equally: the last one stands at H_K - 1 after K - 1 pulls."""
    names = [f"arm{i:02}" for i in range(k)]
    credit, left = dict.fromkeys(names, 0), list(names)
    while len(left) > 1:
        shares = dict.fromkeys(names, 0) | to_units(dict.fromkeys(left, 1.0))
        dealt = one(shares, credit)
        (pulled,) = dealt.counts
        left, credit = [n for n in left if n != pulled], dealt.credits
    reached = Fraction(credit[left[0]], SHARE_UNIT)
    assert abs(reached - (harmonic(k) - 1)) < Fraction(k, SHARE_UNIT)


@settings(max_examples=30)
@given(names_of, st.integers())
def test_under_any_masks_credits_stay_within_half_of_k_minus_one(names: list[str], seed: int) -> None:
    credit, draw = dict.fromkeys(names, 0), random.Random(seed)
    bound = (len(names) - 1) * SHARE_UNIT // 2
    for _ in range(100):
        active = sorted(draw.sample(names, draw.randint(1, len(names))))
        after = one(drawn(draw, active), credit).credits
        assert {n: after[n] for n in names if n not in active} == {n: credit[n] for n in names if n not in active}
        credit = after
        ordered = sorted(credit.values(), reverse=True)
        assert all(  # the proof's invariant, of which the bound is the first line
            2 * sum(ordered[:m]) <= m * (len(names) - m) * SHARE_UNIT for m in range(1, len(names) + 1)
        )
        assert -bound <= min(credit.values())
        assert max(credit.values()) <= bound


@pytest.mark.parametrize("k", [2, 5, 9])
def test_masks_at_every_pull_drive_credits_to_the_bound(k: int) -> None:
    """Pairs that are level are torn a whole pull apart, until all stand one pull apart."""
    names = [f"arm{i}" for i in range(k)]
    credit = dict.fromkeys(names, 0)
    for _ in range(10_000):
        level = [(a, b) for a in names for b in names if a < b and abs(credit[a] - credit[b]) < SHARE_UNIT]
        if not level:
            break
        a, b = min(level, key=lambda pair: abs(credit[pair[0]] - credit[pair[1]]))
        share = (SHARE_UNIT + credit[b] - credit[a]) // 2
        credit = one({a: share, b: SHARE_UNIT - share}, credit).credits
    assert max(credit.values()) == pytest.approx((k - 1) / 2 * SHARE_UNIT, rel=1e-6)


def test_ties_go_by_name_and_the_order_of_a_mapping_does_not_count() -> None:
    half = SHARE_UNIT // 2
    for shares in ({"a": half, "b": half}, {"b": half, "a": half}):
        assert one(shares, {}).counts == {"a": 1}


def test_an_arm_at_its_limit_is_out_in_the_middle_of_a_batch_and_keeps_its_credit() -> None:
    shares = split(["a", "b", "c"], [5, 3, 2])
    before = deal(shares, {}, {}, {"a": 2, "b": None, "c": None}, 4, caps=whole(["a", "b", "c"]))
    assert before.cursors["a"] == 2
    dealt = deal(shares, {}, {}, {"a": 2, "b": None, "c": None}, 20, caps=whole(["a", "b", "c"]))
    assert dealt.cursors["a"] == 2
    assert dealt.credits["a"] == before.credits["a"]
    assert sum(dealt.credits.values()) == 0
    assert abs(dealt.counts["b"] - 18 * 0.6) <= 2
    assert not dealt.scaled


def test_masked_arms_are_carried_through_unchanged() -> None:
    dealt = deal({"b": SHARE_UNIT}, {"a": 7}, {"a": 99, "b": -99}, {"b": None}, 3, caps={"b": SHARE_UNIT})
    assert dealt == Dealt({"b": 3}, {"a": 7, "b": 3}, {"a": 99, "b": -99}, scaled=False)


def test_an_arm_of_cap_0_is_never_pulled() -> None:
    caps = {"a": 0, "b": SHARE_UNIT}
    assert deal({"a": 0, "b": SHARE_UNIT}, {}, {"a": SHARE_UNIT}, {"a": None, "b": None}, 5, caps=caps).counts == {
        "b": 5
    }
    with pytest.raises(Exhausted):
        deal({"a": 0, "b": SHARE_UNIT}, {}, {}, {"a": None, "b": 4}, 5, caps=caps)


def test_a_batch_that_cannot_be_filled_is_not_dealt_at_all() -> None:
    half = SHARE_UNIT // 2
    cursors, credit = {"a": 1, "b": 2}, {"a": 5, "b": -5}
    limits: dict[str, int | None] = {"a": 3, "b": 4}
    caps = whole(["a", "b"])
    assert deal({"a": half, "b": half}, cursors, credit, limits, 4, caps=caps).cursors == {"a": 3, "b": 4}
    with pytest.raises(Exhausted, match="4 of 5"):
        deal({"a": half, "b": half}, cursors, credit, limits, 5, caps=caps)
    assert (cursors, credit) == ({"a": 1, "b": 2}, {"a": 5, "b": -5})


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ValueError, match="shares sum to 5"):
        deal({"a": 5}, {}, {}, {"a": None}, 1, caps={"a": SHARE_UNIT})


@given(st.integers(2, 10), st.data())
def test_spread_is_the_projection_of_the_shares_that_are_left(k: int, data: st.DataObject) -> None:
    """Caps hold, floors hold, ratios of free arms hold: the same point as the exact KL projection."""
    names = [f"arm{i}" for i in range(k)]
    floors = {n: data.draw(st.floats(0, 1)) / k for n in names}
    caps = {n: floors[n] + data.draw(st.floats(0.01, 1)) * (1 - floors[n]) for n in names}
    weights = {n: data.draw(st.floats(1e-3, 1e3)) for n in names}
    if fsum(caps.values()) < 1:
        return
    shares = to_units(project(weights, floors, caps).shares)
    left = data.draw(st.sets(st.sampled_from(names), min_size=1).map(sorted))
    got, scaled = spread({n: shares[n] for n in left}, {n: cap_units(caps)[n] for n in left})
    assert sum(got.values()) == SHARE_UNIT
    assert all(got[n] >= shares[n] - 1 for n in left)
    room = fsum(caps[n] for n in left)
    if abs(room - 1) > 1e-6:
        assert scaled == (room < 1)
        if min(shares[n] for n in left) > 1000:
            expected = project(
                {n: float(shares[n]) for n in left}, {n: floors[n] for n in left}, {n: caps[n] for n in left}
            ).shares
            assert all(abs(got[n] / SHARE_UNIT - expected[n]) < 1e-7 for n in left)
    if not scaled:
        assert all(got[n] <= cap_units(caps)[n] for n in left)


def test_spread_does_not_depend_on_the_order_in_which_arms_went_out() -> None:
    shares, caps = split(["a", "b", "c", "d"], [4, 3, 2, 1]), cap_units({"a": 0.5, "b": 0.3, "c": 0.6, "d": 1.0})
    limits: dict[str, int | None] = {"a": None, "b": None, "c": None, "d": None}
    for first, second in (("a", "b"), ("b", "a")):
        out = deal(shares, {}, {}, limits | {first: 0}, 4, caps=caps)
        end = deal(shares, out.cursors, dict.fromkeys(shares, 0), limits | {first: 0, second: 0}, 30, caps=caps)
        assert end.counts == {"c": 18, "d": 12}


def test_arms_of_share_0_take_over_when_the_others_are_full_or_gone() -> None:
    assert spread({"a": 0, "b": 0}, whole(["a", "b"])) == ({"a": SHARE_UNIT // 2, "b": SHARE_UNIT // 2}, False)
    quarter = SHARE_UNIT // 4
    assert spread({"a": 0, "b": quarter}, {"a": SHARE_UNIT, "b": quarter}) == ({"a": 3 * quarter, "b": quarter}, False)


def test_caps_that_sum_under_one_scale_up_together_and_the_batch_says_so() -> None:
    shares, caps = split(["a", "b", "c"], [5, 3, 2]), cap_units({"a": 0.5, "b": 0.3, "c": 0.2})
    dealt = deal(shares, {}, {}, {"a": 0, "b": None, "c": None}, 10, caps=caps)
    assert dealt.scaled
    assert dealt.counts == {"b": 6, "c": 4}


def test_the_deal_is_fixed_for_ever() -> None:
    """A replay must deal the same: these numbers never change."""
    shares = {"a": 2147483648, "b": 1288490189, "c": 858993459}
    limits: dict[str, int | None] = {"a": 3, "b": None, "c": 5}
    dealt = deal(shares, {"c": 1}, {"a": -7, "b": 7}, limits, 13, caps=cap_units({"a": 1, "b": 0.6, "c": 1}))
    assert dealt.counts == {"a": 3, "b": 6, "c": 4}
    assert dealt.credits == {"a": -7, "b": 1717986929, "c": -1717986922}
    assert dealt.scaled


def test_an_epoch_limit_is_a_whole_number_of_pulls() -> None:
    assert cursor_limit(None, 10) is None
    assert cursor_limit(2.5, 11) == 27
    assert cursor_limit(1, 7) == 7
