"""Rounds laid out one after another over random policies: limits, dealing, epochs, phases and pivots together."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea_corpus.rounds import Regime, Standing, after, lay_out, play
from andrea_rundir.plan import SHARE_UNIT, RoundPlan
from andrea_rundir.policy import Arm, Phase, Policy, dump, policy_id

BATCH, SIZE = 6, 5


def regime(policy: Policy, start: int = 0, windows: int = 40, prints: dict[str, str] | None = None) -> Regime:
    text = dump(policy)
    arms = prints or {arm: f"print of {arm}" for arm in sorted(policy.arms)}
    return Regime(policy_id(text, start), policy, text, arms, dict.fromkeys(arms, windows))


def begin(under: Regime, step: int = 0) -> Standing:
    zero = dict.fromkeys(sorted(under.arms), 0)
    return Standing(step, under.id, under.arms, zero, zero)


def next_round(under: Regime, here: Standing, weights: dict[str, float] | None = None) -> RoundPlan | None:
    laid = lay_out(under, here, here.step // SIZE, here.step + SIZE, weights=weights, batch_size=BATCH)
    return None if laid is None else laid.plan


@st.composite
def policies(draw: st.DrawFn, limited: bool) -> Policy:
    """Up to 7 arms with floors, caps and phases that mask and limit; with `limited`, epoch limits too."""
    names = [f"arm{i}" for i in range(draw(st.integers(1, 7)))]
    arms = {}
    for name in names:
        floor = draw(st.floats(0, 1 / len(names)))
        cap = draw(st.floats(min(1.0, 2 / len(names)), 1))
        epochs = draw(st.none() | st.floats(0.1, 3)) if limited else None
        arms[name] = Arm(
            path=f"/{name}", floor=floor, cap=max(cap, floor), prior=draw(st.floats(0.1, 9)), max_epochs=epochs
        )
    phases = []
    for i in range(draw(st.integers(0, 3))):
        some = sorted(draw(st.sets(st.sampled_from(names), min_size=1)))
        loose = dict.fromkeys(some, 1.0)
        phases.append(Phase(name=f"p{i}", until_step=(i + 1) * 4 * SIZE, arms=some, cap=loose))
    return Policy(arms=arms, phases=phases)


@given(policies(limited=False), st.data())
@settings(max_examples=40, deadline=None)
def test_shares_keep_their_limits_and_pulls_follow_them_in_every_window(policy: Policy, data: st.DataObject) -> None:
    under = regime(policy)
    here, k = begin(under), len(policy.arms)
    owed = {arm: [0.0] for arm in policy.arms}
    for _ in range(20):
        weights = {arm: data.draw(st.floats(1e-6, 1e6)) for arm in sorted(policy.arms)}
        limits = policy.limits(here.step + 1)
        plan = next_round(under, here, weights)
        assert plan is not None and here.takes(plan) and sum(plan.shares.values()) == SHARE_UNIT
        shares = {arm: share / SHARE_UNIT for arm, share in plan.shares.items()}
        assert abs(fsum(shares.values()) - 1) < 1e-12
        for arm, share in shares.items():
            assert limits.floors[arm] - 2**-32 <= share <= limits.caps[arm] + 2**-32
        assert plan.steps is not None
        for counts in plan.steps:
            assert sum(counts.values()) == BATCH and counts.keys() <= plan.shares.keys()
            for arm, lags in owed.items():
                lags.append(lags[-1] + counts.get(arm, 0) - BATCH * shares.get(arm, 0.0))
        here = after(plan, BATCH)
    for lags in owed.values():
        assert max(lags) - min(lags) <= max(k - 1, 0) + 1e-6


@given(policies(limited=True), st.integers(3, 60))
@settings(max_examples=40, deadline=None)
def test_no_arm_is_pulled_past_its_epochs_and_rounds_join(policy: Policy, windows: int) -> None:
    under = regime(policy, windows=windows)
    here = begin(under)
    for _ in range(24):
        plan = next_round(under, here)
        if plan is None:
            open_ = {
                arm: (under.limit(arm) or 10**9) - here.cursors[arm]
                for arm in under.active(here.step + 1, here.cursors)
            }
            assert sum(open_.values()) < BATCH
            return
        assert plan.steps is not None and here.takes(plan)
        there = after(plan, BATCH)
        for arm, cursor in there.cursors.items():
            limit = under.limit(arm)
            assert limit is None or cursor <= limit
            assert cursor == here.cursors[arm] + sum(counts.get(arm, 0) for counts in plan.steps)
        middle = after(plan, BATCH, until=plan.first)
        assert [d.counts for d in play(plan, BATCH, middle)] == plan.steps[1:]
        if plan.last < here.step + SIZE:
            assert next_round(under, there) is None
            return
        here = there


def test_a_plan_that_dealing_does_not_give_is_refused() -> None:
    under = regime(Policy(arms={"a": Arm(path="/a"), "b": Arm(path="/b")}))
    plan = next_round(under, begin(under))
    assert plan is not None and plan.steps is not None
    with pytest.raises(ValueError, match="dealing gives"):
        play(replace(plan, steps=[{"a": BATCH}, *plan.steps[1:]]), BATCH)
    with pytest.raises(ValueError):
        play(plan, BATCH + 1)
    with pytest.raises(ValueError, match="more steps"):
        play(replace(plan, limits={"a": 0, "b": 3}, steps=[{"b": BATCH}] * SIZE), BATCH)


def test_only_a_plan_that_begins_right_here_is_taken() -> None:
    under = regime(Policy(arms={"a": Arm(path="/a"), "b": Arm(path="/b")}))
    here = begin(under)
    plan = next_round(under, here)
    assert plan is not None and here.takes(plan)
    for changes in (
        {"cursors": {"a": 1, "b": 0}},
        {"credits": {"a": 1, "b": -1}},
        {"arms": {"a": "another file", "b": plan.arms["b"]}},
        {"first": 2},
        {"policy": "5-0123456789ab"},
    ):
        assert not here.takes(replace(plan, **changes))  # type: ignore[arg-type]


def test_under_another_policy_cursors_run_on_by_fingerprint() -> None:
    old = regime(Policy(arms={"a": Arm(path="/a"), "b": Arm(path="/b"), "c": Arm(path="/c")}))
    first = next_round(old, begin(old))
    assert first is not None
    here = after(first, BATCH)
    arms = {"renamed": "print of a", "b": "another file", "back": "print of an arm long gone"}
    new = regime(Policy(arms={arm: Arm(path=f"/{arm}") for arm in arms}), SIZE, prints=dict(sorted(arms.items())))
    there = here.fresh(new, {"print of an arm long gone": 77, "print of a": 1})
    assert there.cursors == {"b": 0, "back": 77, "renamed": here.cursors["a"]} and set(there.credits.values()) == {0}
    plan = next_round(new, there)
    assert plan is not None and here.takes(plan) and there.takes(plan)
    assert not here.takes(replace(plan, cursors={**plan.cursors, "renamed": 0})), "an arm's cursor went back"
    assert not here.takes(replace(plan, credits={**plan.credits, "b": 1, "back": -1})), "credits must start fresh"
    later = next_round(new, after(plan, BATCH))
    assert later is not None and not after(plan, BATCH).takes(plan) and not here.takes(later)


def test_a_fallback_keeps_the_last_shares_only_for_the_same_arms() -> None:
    arms = {"a": Arm(path="/a", prior=1), "b": Arm(path="/b", prior=3, floor=0.1)}
    under = regime(Policy(arms=arms, phases=[Phase(name="only-b", until_step=SIZE, arms=["b"])]))
    quarter = {"a": SHARE_UNIT // 4 * 3, "b": SHARE_UNIT // 4}
    inside = lay_out(under, begin(under), 0, SIZE, shares=quarter)
    after_it = lay_out(under, begin(under, SIZE), 1, 2 * SIZE, shares=quarter)
    other = lay_out(under, begin(under, SIZE), 1, 2 * SIZE, shares={"b": SHARE_UNIT})
    assert inside is not None and inside.plan.shares == {"b": SHARE_UNIT}
    assert after_it is not None and after_it.plan.shares == quarter and after_it.plan.steps is None
    assert other is not None and other.plan.shares == {"a": SHARE_UNIT // 4, "b": SHARE_UNIT // 4 * 3}
