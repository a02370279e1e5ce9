"""Waiting for what a process does, by looking at its files."""

from __future__ import annotations

import time
from collections.abc import Callable

from andrea_rundir.events import read_back
from andrea_rundir.names import RunDir


def until(what: str, happened: Callable[[], bool], timeout: float = 150, pause: float = 0.01) -> None:
    """Return as soon as `happened()`, asked every `pause` seconds; fail the test after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not happened():
        assert time.monotonic() < deadline, f"{what}: not within {timeout} s"
        time.sleep(pause)


def last_step(run: RunDir) -> int:
    """The step of the newest step event; -1 before the first."""
    if not run.events.is_dir():
        return -1
    return next((e["step"] for e in read_back(run.events) if e.get("event") == "step"), -1)


def wait_step(run: RunDir, step: int, timeout: float = 150) -> None:
    """Wait until a step at or past `step` is on record."""
    until(f"step {step}", lambda: last_step(run) >= step, timeout)


def wait_checkpoint(run: RunDir, step: int, timeout: float = 150) -> None:
    """Wait until the checkpoint of `step` stands under its name."""
    until(f"checkpoint {step}", lambda: run.checkpoint(step).exists(), timeout)
