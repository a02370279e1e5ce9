"""Fallback rounds: the trainer never stops for want of a plan, and what it did instead is replayed as it was."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from andrea_rundir.entries import read
from andrea_rundir.eventlog import EventLog
from andrea_rundir.events import read as read_events
from andrea_rundir.names import RunDir
from harness import Trainer, sidecar_diff, start, start_proxy, twin_diff, until, wait_step
from harness.waiting import last_step

LAST, CADENCE = 80, 10
# The second phase leaves one arm out, the third changes limits: a fallback cannot just go on over an edge.
PHASES = """
[[phases]]
name = "warm-up"
until_step = 30
[[phases]]
name = "prose-only"
until_step = 50
arms = ["prose"]
[[phases]]
name = "the-rest"
floor = { sums = 0.4 }
"""

Make = Callable[..., RunDir]


def settings(plan_wait: float, last: int = LAST) -> dict[str, Any]:
    return {
        "run": {"plan_wait": plan_wait},
        "optimizer": {"max_steps": last},
        "checkpoint": {"every": CADENCE, "keep_last": 2},
        "probe": {"every": 40},
    }


def fallbacks(run: RunDir) -> list[dict[str, Any]]:
    return [event for event in read_events(run.events) if event["event"] == "fallback"]


def end_well(process: Trainer) -> None:
    assert process.wait(120) == 0, process.said()


def record_all(run: RunDir, proxy: Trainer) -> None:
    until("the proxy has recorded all", lambda: max((e["step"] for e in read(run.loss)), default=0) >= LAST)
    assert proxy.stop() == 0, proxy.said()


def is_replayed(run: RunDir, make: Make) -> None:
    """A quiet run whose trainer is given the same fallback rounds beforehand is the same run."""
    assert fallbacks(run), "no round fell back: the test tests nothing"
    quiet = make("replay", settings(600), rules=PHASES)
    log = EventLog(quiet.events)
    for event in fallbacks(run):
        log.append("fallback", **{name: value for name, value in event.items() if name not in ("event", "time")})
    log.close()
    with start_proxy(quiet) as proxy, start(quiet) as trainer:
        end_well(trainer)
        record_all(quiet, proxy)
    assert [e["first"] for e in fallbacks(quiet)] == [e["first"] for e in fallbacks(run)], "it fell back anew"
    assert twin_diff(run, quiet, LAST, cadence=CADENCE) == []
    assert sidecar_diff(run, quiet, fell_back=True) == []


@pytest.mark.parametrize("seed", range(3))
def test_whatever_fell_back_is_replayed(seed: int, make: Make) -> None:
    """The proxy is killed and comes back once rounds fell back; the trainer is killed then, and replays them."""
    run, rng = make(f"race-{seed}", settings(0.0), rules=PHASES), np.random.default_rng(seed)
    with start_proxy(run) as proxy, start(run) as trainer:
        wait_step(run, int(rng.integers(1, 25)))
        proxy.kill()
        until("a round fell back", lambda: len(fallbacks(run)) > int(rng.integers(3)))
        with start_proxy(run) as proxy:
            trainer.kill()
            with start(run) as trainer:
                end_well(trainer)
                record_all(run, proxy)
    is_replayed(run, make)


def test_a_crash_inside_a_fallback_that_crossed_a_phase_edge(make: Make) -> None:
    run = make("edge", settings(0.0), rules=PHASES)
    crash: dict[str, object] = {"at": "andrea_train.loop:Loop._edge", "call": 36, "do": "KILL"}
    with start(run, hurt=[crash]) as trainer:
        assert trainer.wait() == -9
    before = len(fallbacks(run))
    with start(run, "--until-step", "45") as trainer:
        end_well(trainer)
    assert {event["first"] for event in fallbacks(run)[:before]} >= {31}
    replays = [e["first"] for e in fallbacks(run)]
    assert len(replays) == len(set(replays)), "a recorded fallback was recorded again"
    run.run_toml.write_text(run.run_toml.read_text().replace("plan_wait = 0.0", "plan_wait = 600.0"))
    with start_proxy(run) as proxy:
        until("a line after the fallbacks", lambda: run.plan.exists() and run.plan.read_bytes().count(b"\n") >= 6)
        with start(run) as trainer:
            end_well(trainer)
            record_all(run, proxy)
    flags = {e["step"]: e["flags"] for e in read(run.loss)}
    assert flags[36] == ["fallback"] and all(flags[step] == [] for step in range(51, LAST + 1))
    is_replayed(run, make)


def test_a_plan_that_arrives_just_as_the_trainer_falls_back(make: Make) -> None:
    """The trainer dies once its fallback is durable; the proxy then publishes that round, not knowing of it yet."""
    run = make("late", settings(0.0), rules=PHASES)
    announced: dict[str, object] = {"at": "andrea_train.loop:Loop.announce", "call": 1, "do": "KILL", "after": True}
    with start(run, hurt=[announced]) as trainer:
        assert trainer.wait() == -9
    tape = run.events.rename(run.root / "events.hidden")
    with start_proxy(run) as proxy:
        until("the first lines", lambda: run.plan.exists() and run.plan.read_bytes().count(b"\n") >= 2)
        tape.rename(run.events)
        with start(run) as trainer:
            end_well(trainer)
            record_all(run, proxy)
    lines = [line for line in run.plan.read_text().splitlines() if '"round":0,' in line]
    assert len(lines) == 2 and '"fallback":true' in lines[1], "the published line was not superseded"
    assert next(iter(read(run.loss)))["flags"] == ["fallback"]
    is_replayed(run, make)


def test_the_proxy_absent_for_500_steps(make: Make) -> None:
    """Training pauses no longer than the budget; afterwards no step is missing and no window was skipped."""
    patience = 1.0
    run = make("absent", settings(patience, 100_000) | {"checkpoint": {"every": 20}})
    slowly: dict[str, object] = {"at": "andrea_train.stepper:Stepper.take", "call": 1, "times": 0, "do": "SLEEP"}
    with start(run, hurt=[{**slowly, "seconds": 0.02}]) as trainer:  # a proxy that is held up for a moment is in time
        with start_proxy(run) as proxy:
            wait_step(run, 45)
            assert proxy.stop() == 0
        wait_step(run, 560)
        with start_proxy(run) as proxy:
            until("it has taken over", lambda: last_step(run) > fallbacks(run)[-1]["last"] + 20)
            assert trainer.stop() == 0
            last = last_step(run)
            until("all is recorded", lambda: max(e["step"] for e in read(run.loss)) >= last)
            assert proxy.stop() == 0, proxy.said()
    entries = list(read(run.loss))
    assert [entry["step"] for entry in entries] == list(range(1, last + 1))
    absent = [entry["step"] for entry in entries if entry["flags"] == ["fallback"]]
    assert len(absent) >= 480 and absent == list(range(absent[0], absent[-1] + 1)) and absent[-1] < last
    steps = [event for event in read_events(run.events) if event["event"] == "step"]
    cursors: dict[str, int] = {}
    for event in steps:
        for arm, (pulls, *_) in event["arms"].items():
            cursors[arm] = cursors.get(arm, 0) + pulls
        assert event["cursors"] == cursors
    waits = [when(b) - when(a) - b["seconds"] for a, b in pairwise(steps) if a["step"] % 20 == 0]
    waits = [wait for wait, event in zip(waits, steps[20::20], strict=False) if event["flags"]]
    assert sum(waits) < patience + 0.01 * (when(steps[-1]) - when(steps[0])) + 0.1 * len(waits)


def when(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def test_a_wait_for_a_plan_is_broken_off(make: Make, tmp_path: Path) -> None:
    """SIGTERM and SIGUSR1 are heard while a plan is waited for."""
    run = make("waiting", settings(600.0))
    with start_proxy(run) as proxy:
        until("two rounds are planned", lambda: run.plan.exists() and run.plan.read_bytes().count(b"\n") >= 2)
        assert proxy.stop() == 0
    run.plan.write_bytes(run.plan.read_bytes().splitlines(True)[0])
    with start(run) as trainer:
        wait_step(run, 10)
        trainer.signal(signal.SIGTERM)
        assert trainer.wait(20) == 0, trainer.said()
    assert max(run.checkpoints()) == 10


@pytest.mark.parametrize("every", [10, 40])
def test_a_checkpoint_is_asked_for_while_a_plan_is_waited_for(every: int, make: Make) -> None:
    """It is audited as any; where there is one of that step already nothing is done."""
    run = make("asked", {**settings(600.0), "checkpoint": {"every": every}})
    with start_proxy(run) as proxy:
        until("two rounds are planned", lambda: run.plan.exists() and run.plan.read_bytes().count(b"\n") >= 2)
        assert proxy.stop() == 0
    first, second = run.plan.read_bytes().splitlines(True)[:2]
    run.plan.write_bytes(first)
    last = json.loads(first)["last"]

    def told(kind: str) -> int:
        return [event["event"] for event in read_events(run.events) if event.get("step") == last].count(kind)

    with start(run) as trainer:
        wait_step(run, last)
        if every == last:
            until("the checkpoint", lambda: told("checkpoint") == 1)
        trainer.signal(signal.SIGUSR1)
        until("the checkpoint", lambda: told("checkpoint") == 1)
        until("it is heard", lambda: trainer.process.poll() is None and not signalled(trainer.pid))
        with run.plan.open("ab") as plan:
            plan.write(second)
        wait_step(run, last + 1)
        assert trainer.stop() == 0, trainer.said()
    assert [told(kind) for kind in ("snapshot", "checkpoint", "audit")] == [1, 1, 1]


def signalled(pid: int) -> bool:
    """Whether a SIGUSR1 waits to be taken."""
    status = Path(f"/proc/{pid}/status").read_text()
    waiting = int(status.partition("ShdPnd:")[2].split()[0], 16)
    return bool(waiting >> (signal.SIGUSR1 - 1) & 1)
