"""Time goes wrong: either side stands still for a while, or the clock of the day jumps. Nothing comes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from faults.pair import HALFWAY, PATIENT, end, is_twin
from harness import Trainer, start, start_proxy, until
from harness.preload import library

Make = Callable[..., RunDir]

STILL = 90.0 if os.environ.get("FAULTS") == "all" else 2.0
"""Seconds for which either one stands still."""
HOUR, DAY = 3600, 86400
# The save of step 40 has ended then: the one of 50 waits for it.
INSIDE_A_STEP: dict[str, object] = {"at": "andrea_train.stepper:Stepper.take", "call": 52, "do": "STOP"}


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """A file of seconds, by which the clock of a process is off that is started with `shifted` of it."""
    library(Path(__file__).with_name("clock.c"), tmp_path / "clock.so")
    seconds = tmp_path / "seconds"
    seconds.write_text("0")
    return seconds


def shifted(clock: Path) -> dict[str, str]:
    """The environment of a process with that clock."""
    return {"LD_PRELOAD": str(clock.with_name("clock.so")), "CLOCK": str(clock)}


def test_either_may_stand_still_for_a_while(make: Make, whole: RunDir) -> None:
    run = make("still", PATIENT)
    with start_proxy(run) as proxy, start(run, hurt=[HALFWAY]) as trainer:
        until("the trainer stands still", trainer.frozen)
        time.sleep(STILL)
        proxy.signal(signal.SIGSTOP)
        until("the proxy stands still", proxy.frozen)
        trainer.signal(signal.SIGCONT)
        time.sleep(STILL)
        assert trainer.process.poll() is None, "it waits for a plan"
        proxy.signal(signal.SIGCONT)
        end(run, trainer, proxy)
    is_twin(run, whole)


def test_the_clock_may_jump_both_ways(make: Make, whole: RunDir, clock: Path) -> None:
    env = shifted(clock)
    run, jumps = make("clock", PATIENT), {20: HOUR, 30: -DAY, 40: 0}
    stops = [{**HALFWAY, "times": len(jumps)}, INSIDE_A_STEP]
    with start_proxy(run, env=env) as proxy, start(run, hurt=stops, env=env) as trainer:
        for step, seconds in jumps.items():
            until(f"the trainer stands still at {step}", partial(stands_at, run, trainer, step))
            clock.write_text(str(seconds))
            assert nothing_is_negative(run, env)
            trainer.signal(signal.SIGCONT)
        until("the trainer stands still inside of a step", trainer.frozen)
        clock.write_text(str(-DAY))
        trainer.signal(signal.SIGCONT)
        end(run, trainer, proxy)
    is_twin(run, whole)
    stamps = [event["time"] for event in read(run.events)]
    assert stamps != sorted(stamps), "no clock has jumped"
    assert all(event["seconds"] >= 0 for event in read(run.events) if "seconds" in event)


def stands_at(run: RunDir, trainer: Trainer, step: int) -> bool:
    """Whether it has stopped after the checkpoint of a step."""
    return step in run.checkpoints() and trainer.frozen()


def nothing_is_negative(run: RunDir, env: dict[str, str]) -> bool:
    """Of what `andrea status` shows, every number of seconds is at least 0."""
    command = [sys.executable, "-m", "andrea_cli.main", "status", str(run.root), "--json"]
    found = json.loads(subprocess.run(command, env={**os.environ, **env}, capture_output=True, check=True).stdout)
    shown = {**found, **{f"checkpoint {name}": value for name, value in found["checkpoint"].items()}}
    seconds = {name: value for name, value in shown.items() if name.endswith("seconds") and value is not None}
    assert "checkpoint age_seconds" in seconds  # the time that is left may be unknown after a jump
    return all(value >= 0 for value in seconds.values())
