"""One booted machine a worker, installed as docs/operations.md says; each test makes its own run on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.demands import demand
from harness.host import OUTSIDER, READER, Host
from harness.machine import Machine, missing
from harness.wheels import build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it is installed, units and all."""
    return build(tmp_path_factory.mktemp("wheel"))


@contextmanager
def fresh(folder: Path, *, own_disk: bool = True) -> Iterator[Machine]:
    """A machine that was booted; off and gone at the end."""
    demand("the units on a booted machine", missing())
    machine = Machine(folder, own_disk=own_disk)
    try:
        machine.boot()
        yield machine
    finally:
        machine.close()


@pytest.fixture(scope="session")
def shared_host(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Host]:
    """The machine that most tests share, with the project installed."""
    with fresh(tmp_path_factory.mktemp("machine")) as machine:
        yield Host(machine, wheel)


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with nothing of ours on it, and no disk of its own for the runs."""
    with fresh(tmp_path_factory.mktemp("bare"), own_disk=False) as machine:
        yield machine


@pytest.fixture
def host(shared_host: Host) -> Iterator[Host]:
    """The machine with nothing running on it and no changed units, before and after."""
    shared_host.tidy()
    yield shared_host
    shared_host.tidy()


@pytest.fixture
def readers(host: Host) -> Host:
    """The same, with a user who is a member of the group, and one who is not."""
    if host.run("id", READER, check=False).returncode:
        host.run("useradd", "--create-home", "--groups", "andrea,systemd-journal", READER)
        host.run("useradd", OUTSIDER)
    return host
