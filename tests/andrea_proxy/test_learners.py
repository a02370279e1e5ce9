"""What every learner promises, whichever the policy names."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea_proxy.learners import LEARNERS, Learner, StepRecord, make, restore
from harness.learning_curves import TOKENS, entry, power_law, run, unit

CURVES = {f"arm{i}": power_law(1.0, 1.0 + i, 100.0, 0.5) for i in range(5)}
NAMES = sorted(CURVES)
every = pytest.mark.parametrize("name", sorted(LEARNERS))

losses = st.one_of(st.none(), st.just(math.nan), st.just(math.inf), st.floats(-1e300, 1e300), st.floats(0.0, 10.0))
arms = st.dictionaries(
    st.sampled_from(["a", "b", "c", "ä"]), st.tuples(st.integers(0, 9), losses, st.integers(0, 5000)), max_size=4
)
epochs = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(0.0, 1e6), max_size=3)
histories = st.lists(st.tuples(arms, epochs), max_size=40)


def dumped(learner: Learner) -> str:
    return json.dumps(learner.to_state(), sort_keys=True, allow_nan=False)


def test_a_policy_can_name_four() -> None:
    assert sorted(LEARNERS) == ["fixed", "slope", "ucb1", "uniform"]
    assert all(make(name, 7).name == name for name in LEARNERS)


@every
@settings(max_examples=60, deadline=None)
@given(history=histories, cut=st.integers(0, 40))
def test_whatever_history_holds_state_is_json_and_resumes_bit_for_bit(
    name: str, history: list[tuple[dict[str, tuple[int, float | None, int]], dict[str, float]]], cut: int
) -> None:
    whole, resumed = make(name, 7), make(name, 7)
    for step, (pulled, at) in enumerate(history, start=1):
        if step - 1 == cut:
            resumed = restore(json.loads(dumped(resumed)))
        for learner in (whole, resumed):
            learner.observe(StepRecord(step, TOKENS, pulled, at))
    assert dumped(whole) == dumped(resumed)
    weights = whole.weights(["c", "never", "a"], {"a": 0.5}, {"a": 2.0})
    assert list(weights) == ["a", "c", "never"]
    assert all(math.isfinite(weight) and weight > 0.0 for weight in weights.values())
    assert weights == resumed.weights(["a", "c", "never"], {"a": 0.5}, {"a": 2.0})


@every
def test_a_learner_restored_again_and_again_is_the_one_that_never_stopped(name: str) -> None:
    whole, resumed = make(name, 7), make(name, 7)
    for record in run(CURVES, 300, 0.3, windows=90.0):
        whole.observe(record)
        resumed.observe(record)
        if record.step % 37 == 0:
            resumed = restore(json.loads(dumped(resumed)))
    assert dumped(whole) == dumped(resumed)
    assert whole.weights(NAMES, {}, {}) == resumed.weights(NAMES, {}, {})


@every
def test_asking_changes_nothing(name: str) -> None:
    asked, silent = make(name, 7), make(name, 7)
    for record in run(CURVES, 200, 0.3):
        for learner in (asked, silent):
            learner.observe(record)
        asked.weights(NAMES, {"arm1": 3.0}, {"arm2": 5.0})
        asked.figures("arm3")
    assert dumped(asked) == dumped(silent)


@every
def test_the_order_of_arms_in_an_entry_plays_no_part(name: str) -> None:
    one, other = make(name, 7), make(name, 7)
    for record in run(CURVES, 200, 0.3):
        one.observe(record)
        other.observe(StepRecord(record.step, TOKENS, dict(reversed(record.arms.items())), record.epochs))
    assert dumped(one) == dumped(other)


@every
def test_lists_from_json_are_as_good_as_tuples(name: str) -> None:
    one, other = make(name, 7), make(name, 7)
    for record in run(CURVES, 100, 0.3):
        one.observe(record)
        other.observe(StepRecord(record.step, TOKENS, json.loads(json.dumps(record.arms)), record.epochs))
    assert dumped(one) == dumped(other)


@every
def test_figures_have_the_ema_reward(name: str) -> None:
    learner = make(name, 7)
    for record in run(CURVES, 200):
        learner.observe(record)
    figures = learner.figures("arm4")
    assert figures["pulls"] == 200 and figures["reward"] > 0.0 and 1.0 < figures["ema"] < 6.0


def test_uniform_is_uniform_and_fixed_is_the_prior() -> None:
    uniform, fixed = make("uniform", 7), make("fixed", 7)
    for record in run(CURVES, 100, 0.3):
        uniform.observe(record)
        fixed.observe(record)
    assert uniform.weights(["b", "a"], {"a": 9.0}, {"a": 7.0}) == {"a": 1.0, "b": 1.0}
    assert fixed.weights(["b", "a"], {"a": 9.0}, {"a": 7.0}) == {"a": 9.0, "b": 1.0}


@every
def test_a_state_of_something_else_is_refused(name: str) -> None:
    state = make(name, 7).to_state()
    with pytest.raises(KeyError):
        restore({**state, "learner": "zombie"})
    with pytest.raises(ValueError, match="not"):
        LEARNERS[name].from_state({**state, "learner": "zombie"})
    with pytest.raises((KeyError, TypeError, ValueError)):
        restore({**state, "progress": {"arm": {"pulls": 1, "unheard": 2}}})


@pytest.mark.parametrize(("count", "budget"), [(16, 0.005), (256, 0.050)])
@every
def test_a_round_is_decided_in_time(name: str, count: int, budget: float) -> None:
    """20 steps of 8 pulls folded, then asked; processor time, the best of several rounds."""
    learner, names, step = make(name, 7), [f"arm{i:03d}" for i in range(count)], 0
    taken = []
    for _ in range(60):
        start = time.process_time()
        for _ in range(20):
            step += 1
            pulled = {names[(8 * step + j) % count]: entry(1, 2.0 + unit(step, j)) for j in range(8)}
            learner.observe(StepRecord(step, TOKENS, pulled))
        learner.weights(names, {}, {})
        taken.append(time.process_time() - start)
    assert min(taken[-20:]) <= budget


def test_learners_need_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; sys.modules.update(torch=None, numpy=None); from andrea_proxy.learners import make, StepRecord;"
        "slope = make('slope', 1); slope.observe(StepRecord(1, 64, {'a': (1, 2.0, 100)})); slope.weights(['a'], {}, {})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
