"""One booted machine a worker, installed as docs/operations.md says; each test makes its own run on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.host import Host
from harness.machine import Machine, missing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it is installed, units and all."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def fresh_host(folder: Path, wheel: Path) -> Iterator[Host]:
    """A machine with the project installed; off and gone at the end."""
    lacking = missing()
    if lacking is not None:
        assert "CI" not in os.environ, f"the units were not tested: no {lacking}"
        pytest.skip(f"booting a machine needs root and systemd-nspawn: no {lacking}")
    machine = Machine(folder)
    try:
        machine.boot()
        yield Host(machine, wheel)
    finally:
        machine.close()


@pytest.fixture(scope="session")
def shared_host(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Host]:
    """The machine that most tests share."""
    yield from fresh_host(tmp_path_factory.mktemp("machine"), wheel)


@pytest.fixture
def host(shared_host: Host) -> Iterator[Host]:
    """The machine with nothing running on it and no changed units, before and after."""
    shared_host.tidy()
    yield shared_host
    shared_host.tidy()
