from __future__ import annotations

import math

import pytest

from andrea_proxy.learners import StepRecord
from andrea_proxy.learners.slope import EPOCH_DECAY, Slope, repeat_value
from harness.learning_curves import TOKENS, entry, power_law, run

CURVES = {
    "learning": power_law(1.0, 4.0, 300.0, 0.5),
    "slower": power_law(1.0, 2.0, 300.0, 0.5),
    "noise": lambda n: 7.0,
    "repetitive": power_law(0.05, 4.0, 2.0, 2.0),
}
NAMES = sorted(CURVES)


def folded(steps: int = 600, noise: float = 0.0, curves=CURVES, windows: float = 1e9) -> Slope:  # type: ignore[no-untyped-def]
    learner = Slope()
    for record in run(curves, steps, noise, windows):
        learner.observe(record)
    return learner


def test_share_goes_by_the_cube_of_the_gain() -> None:
    weights = folded().weights(["learning", "slower"], {}, {})
    assert weights["slower"] / weights["learning"] == pytest.approx(0.5**3, rel=0.02)


def test_share_goes_by_the_prior_once() -> None:
    learner = folded()
    plain, doubled = learner.weights(NAMES, {}, {}), learner.weights(NAMES, {"slower": 2.0}, {})
    assert doubled == {**plain, "slower": 2.0 * plain["slower"]}


@pytest.mark.parametrize("noise", [0.15, 0.45])
def test_decoys_are_left_to_their_floors(noise: float) -> None:
    weights = folded(1500, noise).weights(NAMES, {}, {})
    assert max(weights["noise"], weights["repetitive"]) < 0.1 * weights["learning"]
    assert min(weights.values()) > 0.0


def test_the_level_of_a_loss_plays_no_part() -> None:
    lifted = {"low": power_law(0.5, 3.0, 300.0, 0.5), "high": power_law(6.0, 3.0, 300.0, 0.5)}
    weights = folded(curves=lifted).weights(["low", "high"], {}, {})
    assert weights["low"] == pytest.approx(weights["high"], rel=0.01)


def test_an_arm_never_pulled_counts_as_the_best_one() -> None:
    weights = folded().weights([*NAMES, "new"], {}, {})
    assert weights["new"] == max(weights.values()) == 1.0


def test_nothing_known_means_the_priors() -> None:
    assert Slope().weights(["b", "a"], {"a": 3.0}, {}) == {"a": 3.0, "b": 1.0}
    flat = folded(curves={"a": lambda n: 2.0, "b": lambda n: 3.0})
    assert flat.weights(["a", "b"], {"a": 3.0}, {}) == pytest.approx({"a": 3.0, "b": 1.0})


def test_a_repeat_is_worth_less_by_the_rule_of_the_design() -> None:
    assert [repeat_value(e) for e in (0.0, 0.7, 1.0)] == [1.0, 1.0, 1.0]
    assert repeat_value(1.0 + EPOCH_DECAY) == pytest.approx(math.exp(-1.0))
    learner = folded()
    fresh = learner.weights(NAMES, {}, {})
    seen = learner.weights(NAMES, {}, {"learning": 4.0})
    ratio = (seen["slower"] / seen["learning"]) / (fresh["slower"] / fresh["learning"])
    assert ratio == pytest.approx(math.exp(0.5) ** 3)


def test_repeats_are_discounted_in_the_count() -> None:
    assert folded(100, windows=10.0).curves["learning"].count < 0.7 * folded(100).curves["learning"].count


def test_counts_never_fall_when_arms_join() -> None:
    learner, counts = Slope(), []
    for step in range(1, 200):
        names = ["a", "b"] if step < 100 else [f"arm{i}" for i in range(14)] + ["a"]
        learner.observe(StepRecord(step, TOKENS, {name: entry(1, 3.0) for name in names}))
        counts.append(learner.count(learner.curves["a"]))
    assert counts == sorted(counts)


def test_a_skipped_step_advances_counts_and_leaves_the_curve() -> None:
    learner = folded(50)
    before = learner.curves["learning"].to_state()
    learner.observe(StepRecord(51, TOKENS, {"learning": (1, None, 192), "noise": (1, math.nan, 192)}))
    after = learner.curves["learning"].to_state()
    assert after.pop("count") > before.pop("count")
    assert after == before


def test_a_spike_does_not_move_the_shares() -> None:
    calm, struck = folded(noise=0.15), Slope()
    for record in run(CURVES, 600, 0.15):
        spike = {"learning": entry(1, 500.0)} if record.step == 580 else {}
        struck.observe(StepRecord(record.step, TOKENS, {**record.arms, **spike}, record.epochs))
    one, other = calm.weights(NAMES, {}, {}), struck.weights(NAMES, {}, {})
    assert other["slower"] / other["learning"] == pytest.approx(one["slower"] / one["learning"], rel=0.5)


def test_gain_is_among_the_figures() -> None:
    figures = folded().figures("learning")
    assert figures["gain"] == pytest.approx(4.0 * 0.5 / 300.0 * 3.0**-1.5, rel=0.25)
    assert Slope().figures("learning") == {"pulls": 0, "reward": 0.0, "ema": 0.0, "gain": 0.0}
