"""What every test stands on: SIGINT reaches the programs that tests start, however the suite itself was started; and
runs made from texts that are written once, since equal paths give equal policies; and disks of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from andrea_rundir.names import RunDir
from harness import make_run, texts
from harness.demands import demand, no_root

Make = Callable[..., RunDir]

# A suite started in the background inherits an ignored SIGINT, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two arms of text."""
    return texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory, sources: dict[str, Path]) -> Make:
    """Makes a small prepared run; `changes` go over the small configuration."""

    def made(name: str, changes: dict[str, Any] | None = None, **more: Any) -> RunDir:
        return make_run(tmp_path_factory.mktemp(name) / "run", changes=changes, **{"arms": sources, **more})

    return made


@pytest.fixture(scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """For what happens in this process alone, where nobody cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.fixture
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """`mount("tmpfs", "size=1m")` is a fresh folder on a file system of that kind, gone after the test."""
    demand("what happens on other disks", no_root())
    mounted: list[Path] = []

    def make(kind: str, options: str = "rw") -> Path:
        folder = tmp_path_factory.mktemp(kind)
        subprocess.run(["mount", "-t", kind, "-o", options, "none", str(folder)], check=True)
        mounted.append(folder)
        return folder

    yield make
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
