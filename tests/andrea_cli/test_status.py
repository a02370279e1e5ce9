from __future__ import annotations

import hashlib
import os
import time
from typing import Any

import pytest

from andrea_cli import facts
from andrea_cli.status import lines, status
from andrea_rundir import digests
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_service import identity
from harness.commands import Andrea, Tell


def step(number: int, at: float, **more: Any) -> dict[str, Any]:
    return {
        "event": "step",
        "time": at,
        "step": number,
        "loss": 3.0 - number / 100,
        "tokens": 128,
        "seconds": 0.25,
    } | more


START = {"event": "start", "time": 1_800_000_000.0, "step": 0, "attempt": 1}


def test_a_run_that_never_started(andrea: Andrea, made_up: RunDir) -> None:
    done = andrea("status", made_up.root)
    assert done.code == 0
    assert "never started" in done.out and "checkpoint: none yet" in done.out
    found = andrea("status", made_up.root, "--json").json
    assert (found["state"], found["name"], found["step"], found["max_steps"]) == ("stopped", "made-up", None, 40)
    assert found["loss"] is None and found["pid"] is None and found["checkpoint"] is None


def test_a_running_run(made_up: RunDir, tell: Tell) -> None:
    base = time.time() + 1  # events later than the identity's time are its own
    with Lock.acquire(made_up.train_lock, identity.me()):
        tell([START | {"time": base}, *(step(n, base + 0.5 * n) for n in range(1, 21))])
        (made_up.root / "step_000010.bin").write_bytes(b"x" * 20)
        os.utime(made_up.root / "step_000010.bin", (base + 5, base + 5))
        digests.record(made_up.sums, "step_000010.bin", hashlib.sha256(b"x" * 20).hexdigest())
        found = status(made_up, verify=False, now=base + 11)
    assert found["state"] == "running" and found["pid"] == os.getpid()
    assert (found["step"], found["max_steps"]) == (20, 40)
    assert found["loss"] == pytest.approx(2.8)
    assert found["tokens_per_second"] == pytest.approx(512)
    assert found["eta_seconds"] == pytest.approx(20 * 0.5 - 1, abs=0.02)  # by the clock, not by busy seconds
    newest = found["checkpoint"]
    assert newest["step"] == 10 and newest["age_seconds"] == pytest.approx(6)
    assert newest["digest"] == hashlib.sha256(b"x" * 20).hexdigest() and newest["verified"] is None
    text = "\n".join(lines(found))
    for line in (
        "step:       20 of 40 (50.0 %)",
        "loss:       2.8000 nats/token",
        "speed:      512 tokens/s",
        "time left:  9 s (until ",
        "checkpoint: step_000010.bin, 6 s ago, 20 bytes, digest on record",
    ):
        assert line in text


def test_the_card_is_of_this_start_and_shown_while_it_trains(made_up: RunDir, tell: Tell) -> None:
    base = time.time() + 1
    card = {"event": "card", "memory": 20_100_000_000, "memory_total": 24e9, "temperature": 71, "power_limit": 450}
    tell([START | {"time": base}, card | {"step": 0, "power": 430.0}, card | {"step": 9, "power": 433.25}])
    with Lock.acquire(made_up.train_lock, identity.me()):
        found = status(made_up, verify=False, now=base)
        assert "card:       20.1 GB of 24 GB, 71 °C, 433 of 450 W" in lines(found)
    assert found["card"]["power"] == 433.25
    assert not [line for line in lines(status(made_up, verify=False, now=base)) if line.startswith("card")]
    tell([START | {"time": base + 1, "step": 10}])
    assert status(made_up, verify=False, now=base)["card"] is None


def test_a_proxy_that_lives_on_without_a_trainer_is_told_of(made_up: RunDir) -> None:
    with Lock.acquire(made_up.proxy_lock, identity.me()):
        first, second, *_ = lines(status(made_up, verify=False, now=time.time()))
    assert "never started" in first and second.startswith("andrea-proxy") and str(os.getpid()) in second
    assert not any("andrea-proxy" in line for line in lines(status(made_up, verify=False, now=time.time())))


def test_only_this_start_counts(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    """A replay stands where it started again, whatever the attempt before had reached; warnings are of this start."""
    tell([START, {"event": "warning", "step": 3, "what": "old", "detail": "gone"}, step(35, 1_800_000_001.0)])
    tell(
        [START | {"step": 30, "attempt": 2}, {"event": "warning", "step": 30, "what": "save failed", "detail": "full"}]
    )
    found = andrea("status", made_up.root, "--json").json
    assert found["step"] == 30 and found["loss"] is None and found["tokens_per_second"] is None
    assert [warning["what"] for warning in found["warnings"]] == ["save failed"]
    assert "warning:    step 30: save failed: full" in andrea("status", made_up.root).out


def test_looks_of_before_the_start_are_shown_where_they_are_of_its_history(made_up: RunDir, tell: Tell) -> None:
    looks = [{"event": kind, "step": at} for at in (20, 30, 35) for kind in ("probe", "audit", "snapshot")]
    tell([START, *looks, {"event": "warning", "step": 35, "what": "old", "detail": ""}])
    tell([START | {"step": 30}])
    found = facts.recent(made_up)
    assert [event and event["step"] for event in (found.probe, found.audit, found.snapshot)] == [30, 30, 30]
    assert found.warnings == [] and found.step == 30
    tell([{"event": "audit", "step": 40}])
    assert [event and event["step"] for event in (facts.recent(made_up).probe, facts.recent(made_up).audit)] == [30, 40]


def test_many_warnings_are_cut(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    tell([START, *({"event": "warning", "step": n, "what": "spike", "detail": f"no {n}"} for n in range(8))])
    out = andrea("status", made_up.root).out
    assert "no 7" in out and "no 3" in out and "no 2" not in out and "and 3 more" in out
    assert len(andrea("status", made_up.root, "--json").json["warnings"]) == 8


def test_looks_at_the_model(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    audit = {"event": "audit", "step": 20, "score": 66.7, "alarm": True}
    tell([START, {"event": "probe", "step": 20, "mean": 2.5, "arms": {"a": 2.5}}, audit])
    out = andrea("status", made_up.root).out
    assert "held out:   2.500 bits/byte at step 20" in out
    assert "samples:    score 66.7 at step 20, ALARM" in out


def test_the_state_and_its_end(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    Lock.acquire(made_up.train_lock, identity.me()).release()
    tell(
        [START, step(6, 1_800_000_001.0), step(7, 1_800_000_002.0), {"event": "halt", "step": 7, "reason": "diverged"}]
    )
    done = andrea("status", made_up.root)
    assert done.code == 0 and "halted at step 7: diverged" in done.out
    assert "time left" not in done.out  # nothing runs


def test_skipped_steps_have_no_loss(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    tell([START, step(7, 1_800_000_001.0, loss=None, flags=["skipped"])])
    done = andrea("status", made_up.root)
    assert done.code == 0 and "loss:" not in done.out


def test_verify_reads_the_newest_file(andrea: Andrea, made_up: RunDir) -> None:
    path = made_up.checkpoint(100)
    path.write_bytes(b"weights")
    assert "no line in SHA256SUMS" in andrea("status", made_up.root).out
    assert andrea("status", made_up.root, "--verify").code == 0
    digests.record(made_up.sums, path.name, hashlib.sha256(b"weights").hexdigest())
    done = andrea("status", made_up.root, "--verify")
    assert done.code == 0 and "digest verified" in done.out
    path.write_bytes(b"wrights")
    assert andrea("status", made_up.root).code == 0
    done = andrea("status", made_up.root, "--verify")
    assert done.code == 1 and "DIGEST DOES NOT MATCH" in done.out


def test_broken_files(andrea: Andrea, made_up: RunDir) -> None:
    made_up.events.mkdir()
    (made_up.events / "000001.jsonl").write_bytes(b'{"event":"step","step":"x","loss":"y"}\nrubbish\n{"torn')
    assert andrea("status", made_up.root, "--json").json["step"] is None
    made_up.run_toml.write_text("[run")
    done = andrea("status", made_up.root)
    assert done.code == 78 and str(made_up.run_toml) in done.err


def test_a_long_history_costs_nothing(made_up: RunDir, tell: Tell) -> None:
    early = {"event": "warning", "step": 0, "what": "spike", "detail": ""}
    tell([START, early, *(step(n, 1_800_000_000.0 + n) for n in range(1, facts.LOOK_BACK + 1))])
    recent = facts.recent(made_up)
    assert recent.step == facts.LOOK_BACK and recent.warnings == []  # it did not read that far back


def test_events_after_a_marker(made_up: RunDir, tell: Tell) -> None:
    assert facts.newest(made_up) is None and facts.since(made_up, None) == []
    tell([START])
    marker = facts.newest(made_up)
    tell([step(1, 1_800_000_001.0), step(2, 1_800_000_002.0)])
    assert [event["step"] for event in facts.since(made_up, marker)] == [1, 2]
    assert len(facts.since(made_up, None)) == 3
