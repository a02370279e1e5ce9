"""Real file systems: a run saves, is killed, goes on and ends as its twin; and what the device held at an instant in
mid-run, as a power cut leaves it, is mounted and holds what had been announced.

Needs root, loop devices and the tools that make ext4, xfs and btrfs; a kernel without one of them fails here.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from andrea_cli.verify import verify
from andrea_rundir import checkpoint, config, loading
from andrea_rundir.entries import read as read_entries
from andrea_rundir.events import read as read_events
from andrea_rundir.faults import BadConfig
from andrea_rundir.filesystem import refuse_network
from andrea_rundir.names import RunDir
from crash.devices import Device
from harness import make_run, sidecar_diff, start, start_proxy, texts, twin_diff, until
from harness.dry import desk
from harness.twin import entries

LAST, CADENCE = 20, 5
SETTINGS: dict[str, dict[str, Any]] = {
    "run": {"plan_wait": 600.0},
    "optimizer": {"max_steps": LAST},
    "checkpoint": {"every": CADENCE},
    "probe": {"every": 10},
}
ANNOUNCED: dict[str, object] = {"at": "andrea_train.saver:Saver._prune", "call": 3, "do": "STOP"}
"""The third checkpoint's event is written, nothing else was done since: initial, 5 and 10."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, sources: dict[str, Path]) -> RunDir:
    """The twin that nothing happens to."""
    run = make_run(tmp_path_factory.mktemp("whole") / "run", changes=SETTINGS, arms=sources)
    to_the_end(run)
    return run


def to_the_end(run: RunDir) -> None:
    with start_proxy(run) as proxy, start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
        until(
            "all is recorded",
            lambda: max((entry["step"] for entry in read_entries(run.loss)), default=0) == LAST,
        )
        assert proxy.stop() == 0, proxy.said()


@contextmanager
def stopped_short(run: RunDir) -> Iterator[None]:
    """Trainer and proxy, both stopped by a signal at the moment at which a checkpoint is announced; then killed."""
    with start_proxy(run) as proxy, start(run, hurt=[ANNOUNCED]) as trainer:
        until("the trainer stands still", trainer.frozen)
        proxy.signal(signal.SIGSTOP)
        until("the proxy stands still", proxy.frozen)
        yield


def ends_as(run: RunDir, whole: RunDir) -> None:
    to_the_end(run)
    assert twin_diff(run, whole, LAST, cadence=CADENCE) + sidecar_diff(run, whole) == []


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_on_a_disk(kind: str, tmp_path: Path, sources: dict[str, Path], whole: RunDir) -> None:
    device = Device(tmp_path / kind, kind)
    run = make_run(device.mount() / "run", changes=SETTINGS, arms=sources)
    subprocess.run(["sync", "--file-system", str(run.root)], check=True)  # the harness makes it, not `andrea init`
    try:
        with stopped_short(run):
            device.copy(tmp_path / "copy")
            announced = max(event["step"] for event in read_events(run.events) if event["event"] == "checkpoint")
        ends_as(run, whole)
    finally:
        device.unmount()
    cut = Device(tmp_path / "cut", kind, image=tmp_path / "copy")
    place = cut.mount()
    try:
        holds(RunDir(place / "run"), announced, whole)
    finally:
        cut.unmount()


def holds(run: RunDir, announced: int, whole: RunDir) -> None:
    """What was announced is there, whole, with its history; once a proxy was there all is sound."""
    n_params = config.load(run.run_toml).shape.n_params
    image = bytearray(checkpoint.file_size(n_params))

    def take(start: int, piece: memoryview) -> None:
        image[start : start + len(piece)] = piece

    choice = loading.choose(run, take, n_params=n_params)
    assert choice is not None
    assert choice.step >= announced >= 2 * CADENCE
    assert choice.passed == []
    assert image == whole.checkpoint(choice.step).read_bytes()
    proxy = desk(run)
    proxy.turn()
    proxy.close()
    recorded = entries(run)
    assert recorded == entries(whole)[: len(recorded)]
    assert len(recorded) >= choice.step
    findings = [finding.what for section in verify(run, lambda _: None) for finding in section.findings]
    assert findings == []


def test_in_memory(tmp_path: Path, sources: dict[str, Path], whole: RunDir) -> None:
    with mounted("tmpfs", "size=64m", tmp_path / "memory") as place:
        run = make_run(place / "run", changes=SETTINGS, arms=sources)
        with stopped_short(run):
            pass
        ends_as(run, whole)


def test_over_another_file_system(tmp_path: Path, sources: dict[str, Path], whole: RunDir) -> None:
    """The run is made below, all of what becomes of it lies above."""
    below = make_run(tmp_path / "below" / "run", changes=SETTINGS, arms=sources)
    (tmp_path / "above").mkdir()
    (tmp_path / "work").mkdir()
    layers = f"lowerdir={tmp_path}/below,upperdir={tmp_path}/above,workdir={tmp_path}/work"
    with mounted("overlay", layers, tmp_path / "both") as place:
        run = RunDir(place / "run")
        with stopped_short(run):
            pass
        ends_as(run, whole)
    assert below.checkpoints() == {}


def test_a_fuse_file_system_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A real one, with nobody behind it: whoever looked into it would wait for ever."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    place = tmp_path / "remote"
    place.mkdir()
    mount = ["mount", "-i", "-t", "fuse.sshfs", "-o", options, "somewhere", str(place)]
    subprocess.run(mount, check=True, pass_fds=[fd])
    try:
        with pytest.raises(BadConfig) as refused:
            refuse_network(place)
    finally:
        os.close(fd)
        subprocess.run(["umount", "--lazy", str(place)], check=True)
    assert "fuse.sshfs" in (refused.value.found or "")


@contextmanager
def mounted(kind: str, options: str, place: Path) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", kind, "-o", options, kind, str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
