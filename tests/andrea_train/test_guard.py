from __future__ import annotations

import json
import math

import numpy as np

from andrea_train.guard import SPIKE_SIGMA, Guard

EASY, HARD = 1.0, 3.0


def mix(rng: np.random.Generator, names: list[str], levels: dict[str, float]) -> dict[str, tuple[int, float]]:
    return {name: (2, levels[name] + 0.1 * rng.standard_normal()) for name in names}


def mean(arms: dict[str, tuple[int, float]]) -> float:
    return sum(loss for _, loss in arms.values()) / len(arms)


def test_a_change_of_mix_raises_no_alarm() -> None:
    """The raw loss jumps from 1 to 3 and back as phases change; nothing is wrong with the model."""
    guard, rng, alarms = Guard(), np.random.default_rng(1), 0
    levels = {"easy": EASY, "hard": HARD, "other": 2.0}
    for step in range(1, 20_001):
        phase = ["easy"] if step % 4000 < 1500 else ["easy", "hard", "other"] if step % 4000 < 3000 else ["hard"]
        arms = mix(rng, phase, levels)
        z = guard.spike(arms)
        alarms += z is not None and z > SPIKE_SIGMA
        guard.step(step, mean(arms), arms, skipped=False)
        assert guard.diverged(step, vocab_size=257, warmup=100) is None
        assert guard.regressed(step) is None
    assert alarms == 0


def test_a_real_spike_is_seen() -> None:
    guard, rng = Guard(), np.random.default_rng(2)
    for step in range(1, 400):
        arms = mix(rng, ["easy", "hard"], {"easy": EASY, "hard": HARD})
        guard.step(step, mean(arms), arms, skipped=False)
    z = guard.spike({"easy": (2, EASY + 2.0), "hard": (2, HARD)})
    assert z is not None
    assert z > SPIKE_SIGMA


def test_eight_skips_in_a_row_end_the_run_seven_do_not() -> None:
    guard = Guard()
    arms = {"a": (1, 2.0)}
    for step in range(1, 8):
        guard.step(step, math.nan, arms, skipped=True)
        assert guard.diverged(step, vocab_size=257, warmup=0) is None
    guard.step(8, 2.0, arms, skipped=False)
    for step in range(9, 16):
        guard.step(step, math.nan, arms, skipped=True)
        assert guard.diverged(step, vocab_size=257, warmup=0) is None
    guard.step(16, math.nan, arms, skipped=True)
    assert "8 updates in a row" in (guard.diverged(16, vocab_size=257, warmup=0) or "")


def test_a_finite_divergence_ends_the_run_a_hundred_steps_after_warm_up() -> None:
    guard = Guard()
    for step in range(1, 200):
        guard.step(step, 50.0, {"a": (1, 50.0)}, skipped=False)
        sick = guard.diverged(step, vocab_size=257, warmup=50)
        if sick:
            assert step == 150
            assert "above chance" in sick
            return
    raise AssertionError("never noticed")


def test_a_slow_rise_is_a_regression() -> None:
    guard, found = Guard(), None
    for step in range(1, 6001):
        loss = 2.0 if step < 1000 else 2.0 + 0.0001 * (step - 1000)
        guard.step(step, loss, {"a": (1, loss)}, skipped=False)
        found = found or guard.regressed(step)
    assert found is not None
    assert "3 % above its best" in found


def test_the_probe_regresses_on_its_own_clock() -> None:
    guard = Guard()
    guard.step(1, 2.0, {"a": (1, 2.0)}, skipped=False)
    guard.probe(1000, 1.0)
    guard.probe(2000, 1.05)
    assert guard.regressed(3999) is None
    assert "held-out" in (guard.regressed(4000) or "")
    guard.probe(4000, 1.0)
    assert guard.regressed(6000) is None
    assert guard.best_probe_step == 4000  # a later tie wins


def test_state_survives_json_bit_for_bit() -> None:
    guard, rng = Guard(), np.random.default_rng(3)
    for step in range(1, 300):
        arms = mix(rng, ["a", "b"], {"a": EASY, "b": HARD})
        guard.step(step, mean(arms), arms, skipped=step % 50 == 0)
    guard.probe(300, 1.5)
    copy = Guard.from_json(json.loads(json.dumps(guard.to_json())))
    assert copy == guard
    arms = mix(rng, ["a", "b"], {"a": EASY, "b": HARD})
    assert copy.spike(arms) == guard.spike(arms)


def test_only_cadence_audits_count() -> None:
    guard = Guard()
    guard.audit(100, alarm=True, counted=True)
    guard.audit(150, alarm=False, counted=False)
    guard.audit(200, alarm=True, counted=True)
    assert guard.alarms == 2
    guard = Guard.from_json(guard.to_json())
    guard.audit(200, alarm=True, counted=True)  # taken again after a kill
    assert guard.alarms == 2
    guard.audit(300, alarm=False, counted=True)
    assert guard.alarms == 0
