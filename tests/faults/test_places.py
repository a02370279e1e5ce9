"""What becomes of the place: a run removed, moved, closed or made read-only under trainer and proxy. They end, or go
on once it is as it was, and write nothing anywhere else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from andrea_rundir.names import RunDir
from crash.devices import Device
from faults.pair import CADENCE, HALFWAY, PATIENT, end, finish, is_twin, recorded
from harness import Trainer, make_run, start, start_proxy, until, wait_checkpoint
from harness.demands import demand, no_root

Make = Callable[..., RunDir]

UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Root, to whom permissions apply."""


@pytest.fixture(autouse=True)
def root() -> None:
    demand("what becomes of a run's place", no_root())


@pytest.mark.parametrize("fate", ["removed", "moved"] if os.environ.get("FAULTS") == "all" else ["removed"])
def test_a_run_that_is_gone_ends_the_trainer_and_lets_the_proxy_wait(
    fate: str, tmp_path: Path, sources: dict[str, Path]
) -> None:
    run = make_run(tmp_path / "run", changes={**PATIENT, "optimizer": {"max_steps": 1_000_000}}, arms=sources)
    away = tmp_path / "away"
    with start_proxy(run) as proxy, start(run) as trainer:
        wait_checkpoint(run, CADENCE)
        run.root.rename(away)
        if fate == "removed":
            shutil.rmtree(away)
        assert trainer.wait() == 1, trainer.said()
        until("the proxy says so", lambda: "waits: the run is no longer where it was" in proxy.said())
        assert proxy.stop() == 1, proxy.said()
    for process in (trainer, proxy):
        assert "the run is no longer where it was" in process.said() and "Traceback" not in process.said()
    left = {"run.log", "run.proxy.log"} | ({"away"} if fate == "moved" else set())
    assert {path.name for path in tmp_path.iterdir()} == left


@pytest.mark.parametrize(
    "at",
    [
        "andrea_train.feed:Feed.batch",
        "andrea_train.stepper:Stepper.take",
        "andrea_train.loop:Loop._edge",
        "andrea_train.saver:Saver._publish",
        "andrea_train.saver:Saver._prune",
        "andrea_train.looks:Looks.sample",
        "andrea_train.feed:Feed._begin",
    ],
)
def test_a_run_that_is_moved_away_at_any_moment_ends_the_trainer(
    at: str, tmp_path: Path, sources: dict[str, Path]
) -> None:
    run = make_run(tmp_path / "run", changes={**PATIENT, "optimizer": {"max_steps": 1_000_000}}, arms=sources)
    with start_proxy(run) as proxy:
        with start(run, hurt=[{"at": at, "call": 3, "do": "STOP"}]) as trainer:
            until("it stands still", trainer.frozen)
            run.root.rename(tmp_path / "away")
            trainer.signal(signal.SIGCONT)
            assert trainer.wait() == 1, trainer.said()
        assert not run.root.exists()
        assert "the run is no longer where it was" in trainer.said() and "Traceback" not in trainer.said()
        (tmp_path / "away").rename(run.root)
        with start(run, "--until-step", "40") as trainer:
            assert trainer.wait() == 0, trainer.said()
        until("all is recorded", lambda: recorded(run) == 40)
        assert proxy.stop() == 0, proxy.said()


@contextmanager
def refused(run: RunDir, whole: RunDir, error: str, how: Callable[[], object], under: list[str]) -> Iterator[Trainer]:
    """From the third checkpoint on nothing can be written: the trainer ends and says what is lost, the proxy, which is
    given, stays. The trainer has the whole plan beforehand, so that it is not the one who waits."""
    shutil.copy(whole.plan, run.plan)
    with start_proxy(run, under=under) as proxy:
        with start(run, hurt=[HALFWAY], under=under) as trainer:
            until("the trainer stands still", trainer.frozen)
            how()
            trainer.signal(signal.SIGCONT)
            assert trainer.wait() == 1, trainer.said()
        assert "save failed" in trainer.said() and error in trainer.said() and "are lost" in trainer.said()
        yield proxy
        for process in (trainer, proxy):
            assert "Traceback" not in process.said()


def test_a_run_that_is_closed_to_its_services_costs_the_steps_since_its_last_checkpoint(
    make: Make, whole: RunDir
) -> None:
    run = make("closed", PATIENT)
    mode = run.root.stat().st_mode
    with refused(run, whole, "Permission denied", lambda: run.root.chmod(0), UNPRIVILEGED) as proxy:
        until("the proxy says so", lambda: "waits: Permission denied" in proxy.said())
        run.root.chmod(mode)
        with start(run) as trainer:
            end(run, trainer, proxy)
    is_twin(run, whole)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    device = Device(tmp_path / "ext4", "ext4")
    device.mount()
    yield device
    device.unmount()


def test_a_disk_that_has_become_read_only_costs_the_steps_since_its_last_checkpoint(
    device: Device, make: Make, whole: RunDir
) -> None:
    run = RunDir(device.place)  # all of the disk: what is said is written beside it
    shutil.copytree(make("disk", PATIENT).root, run.root, dirs_exist_ok=True)
    os.sync()  # the harness made it, not `andrea init`
    abort = ["mount", "-o", "remount,abort", str(device.place)]
    with refused(run, whole, "Read-only file system", lambda: subprocess.run(abort, check=True), []) as proxy:
        assert proxy.stop() == 0, proxy.said()
    device.unmount()
    device.mount()
    finish(run)
    is_twin(run, whole)
