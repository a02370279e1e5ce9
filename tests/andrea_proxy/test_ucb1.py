from __future__ import annotations

from itertools import pairwise

from andrea_proxy.learners import StepRecord
from andrea_proxy.learners.ucb1 import Ucb1, dice
from harness.learning_curves import TOKENS, entry, power_law, run

CURVES = {f"arm{i}": power_law(1.0, 0.5 * i, 300.0, 0.5) for i in range(10)}


def test_focus_sets_last_7_to_42_steps_and_hold_2_to_6_arms() -> None:
    learner, drawn, sizes = Ucb1(3), [0], set()
    for record in run(CURVES, 3000, 0.1):
        until = learner.until
        learner.observe(record)
        if learner.until != until:
            drawn.append(record.step)
            sizes.add(learner.size)
    lengths = [b - a for a, b in pairwise(drawn[1:])]
    assert (min(lengths), max(lengths)) == (7, 42)
    assert sizes == {2, 3, 4, 5, 6}


def test_a_focus_set_holds_still_until_it_ends() -> None:
    learner, held = Ucb1(3), []
    for record in run(CURVES, 300, 0.1):
        learner.observe(record)
        held.append((learner.until, learner.weights(list(CURVES), {}, {})))
    for (until, weights), (next_until, next_weights) in pairwise(held):
        assert until != next_until or weights == next_weights


def test_the_arms_that_progress_are_in_focus() -> None:
    learner = Ucb1(3)
    for record in run(CURVES, 200):
        learner.observe(record)
    weights = learner.weights(list(CURVES), {"arm9": 2.0}, {})
    focus = [arm for arm, weight in weights.items() if weight >= 1.0]
    assert focus == sorted(CURVES)[-learner.size :]
    assert weights["arm9"] == 2.0
    assert {weights[arm] for arm in CURVES if arm not in focus} == {Ucb1.rest}


def test_an_arm_never_pulled_comes_first() -> None:
    learner = Ucb1(3)
    for record in run(CURVES, 200):
        learner.observe(record)
    assert learner.weights([*CURVES, "new"], {}, {})["new"] == 1.0


def test_a_masked_arm_does_not_take_up_a_place() -> None:
    learner = Ucb1(3)
    for record in run(CURVES, 200):
        learner.observe(record)
    weights = learner.weights(["arm0", "arm1", "arm2"], {}, {})
    assert set(weights) == {"arm0", "arm1", "arm2"}
    assert sum(weight == 1.0 for weight in weights.values()) == min(learner.size, 3)


def test_before_the_first_step_the_priors_hold() -> None:
    assert Ucb1(3).weights(["b", "a"], {"a": 2.0}, {}) == {"a": 2.0, "b": 1.0}


def test_little_pulled_arms_gain_by_their_bonus() -> None:
    learner = Ucb1(3)
    for step in range(1, 400):
        arms = {"often": entry(4, 2.0), **({"seldom": entry(1, 2.0)} if step % 50 == 0 else {})}
        learner.observe(StepRecord(step, TOKENS, arms))
    assert learner.scores["seldom"] > learner.scores["often"]


def test_dice_are_even_and_keep_no_state() -> None:
    throws = [dice(1, "size", step, 2, 6) for step in range(5000)]
    assert throws == [dice(1, "size", step, 2, 6) for step in range(5000)]
    assert all(850 < throws.count(face) < 1150 for face in range(2, 7))
    assert throws != [dice(2, "size", step, 2, 6) for step in range(5000)]
