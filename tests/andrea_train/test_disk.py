"""A full disk, a failed fsync, a failed rename: training goes on, old files stay, the next save succeeds."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea_rundir import digests, inspection
from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from harness import Trainer, make_run, start, twin_diff, until, wait_checkpoint, wait_step

Make = Callable[..., RunDir]

LONG = {"optimizer": {"max_steps": 100_000}, "checkpoint": {"every": 100}, "probe": {"every": 1000}}


@pytest.fixture
def small_disk(mount: Callable[..., Path]) -> Path:
    """A file system of 8 MiB."""
    return mount("tmpfs", "size=8m")


def all_valid(run: RunDir) -> list[int]:
    there = run.checkpoints()
    lines = digests.read(run.sums)  # a file has its line before it has its name
    for path in there.values():
        facts = inspection.inspect(path)
        assert facts.problem is None
        assert lines[path.name] == facts.digest
    return list(there)


def no_checkpoint_ahead_of_its_events(run: RunDir) -> None:
    known = {event["step"] for event in read(run.events) if event["event"] == "snapshot"}
    assert set(run.checkpoints()) <= known


def fill(place: Path, trainer: Trainer, leave: int) -> Path:
    """A file that takes all space of a file system but `leave` bytes; the trainer stands still meanwhile."""
    filler = place / "filler"
    trainer.signal(signal.SIGSTOP)
    until("the trainer stands still", trainer.frozen)
    free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - leave))
    trainer.signal(signal.SIGCONT)
    return filler


def test_a_full_disk_costs_checkpoints_not_the_run(small_disk: Path, sources: dict[str, Path]) -> None:
    run = make_run(small_disk / "run", changes=LONG, arms=sources)
    with start(run) as trainer:
        wait_checkpoint(run, 100)
        filler = fill(small_disk, trainer, 300_000)  # room for events, not for a checkpoint of 504,584 bytes
        old = all_valid(run)
        until("a failed save", lambda: "save failed" in trainer.said())
        failed_at = min(e["step"] for e in read(run.events) if e.get("what") == "save failed")
        wait_step(run, failed_at + 20)  # it trains on
        assert set(old) <= set(all_valid(run))
        assert "No space left" in trainer.said()
        filler.unlink()
        edge = (max(e["step"] for e in read(run.events) if e["event"] == "step") // 100 + 1) * 100
        wait_checkpoint(run, edge)
        assert trainer.stop() == 0
    all_valid(run)
    no_checkpoint_ahead_of_its_events(run)
    assert not list(run.root.glob(".*.tmp"))


def test_no_space_for_events_pauses_and_goes_on(small_disk: Path, sources: dict[str, Path]) -> None:
    run = make_run(small_disk / "run", changes=LONG, arms=sources)
    with start(run) as trainer:
        wait_checkpoint(run, 100)
        filler = fill(small_disk, trainer, 0)
        until("the pause", lambda: "paused" in trainer.said())
        stood_at = max(e["step"] for e in read(run.events) if e["event"] == "step")
        filler.unlink()
        wait_step(run, stood_at + 100)
        assert trainer.stop() == 0
    all_valid(run)
    steps = [event["step"] for event in read(run.events) if event["event"] == "step"]
    assert steps == list(range(1, steps[-1] + 1)), "no event is lost, doubled or out of order"
    no_checkpoint_ahead_of_its_events(run)


FAULTS = {
    "the file's fsync": {"at": "andrea_rundir.publish:_write_image", "call": 3, "do": "EIO"},
    "an fsync": {"at": "os:fsync", "call": 16, "do": "EIO", "times": 3},
    "a rename": {"at": "os:rename", "call": 5, "do": "EIO", "times": 1},
    "a rename and its retry": {"at": "os:rename", "call": 5, "do": "ENOSPC", "times": 2},
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_failed_call_costs_at_most_one_checkpoint(name: str, make: Make, tmp_path: Path) -> None:
    run, whole = make("fault", {"optimizer": {"max_steps": 60}}), make("whole", {"optimizer": {"max_steps": 60}})
    with start(whole) as trainer:
        assert trainer.wait() == 0
    with start(run, hurt=[FAULTS[name]]) as trainer:
        assert trainer.wait() == 0, trainer.said()
    kept = all_valid(run)
    assert len(kept) >= len(whole.checkpoints()) - 1
    assert "failed" in trainer.said() or "EIO" in trainer.said() or "Input/output" in trainer.said()
    no_checkpoint_ahead_of_its_events(run)
    assert not list(run.root.glob(".*.tmp"))
    assert [d for d in twin_diff(run, whole, 60, cadence=60) if not d.startswith("audit")] == []
