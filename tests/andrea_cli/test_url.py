from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from andrea_rundir import door
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_service import identity
from harness.commands import Andrea


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "run")
    found.root.mkdir()
    found.run_toml.write_text("")
    return found


@pytest.fixture
def proxy(run: RunDir) -> Iterator[None]:
    """We pass for the proxy that serves the page."""
    with Lock.acquire(run.proxy_lock, identity.me()):
        yield


@pytest.mark.usefixtures("proxy")
def test_the_way_in(andrea: Andrea, run: RunDir) -> None:
    token = door.open_at(run, "127.0.0.1:8123").token
    done = andrea("url", run.root)
    here = socket.gethostname()
    assert done.code == 0
    assert done.out.splitlines() == [
        f"http://127.0.0.1:8123/?token={token}",
        f"from elsewhere, first: ssh -L 8123:127.0.0.1:8123 {here}",
    ]
    assert andrea("url", run.root, "--json").json["address"] == "127.0.0.1:8123"


@pytest.mark.usefixtures("proxy")
def test_by_a_unix_socket(andrea: Andrea, run: RunDir) -> None:
    token = door.open_at(run, "/run/andrea/name.sock").token
    first, second = andrea("url", run.root).out.splitlines()
    assert first.endswith(f"ssh -L 8470:/run/andrea/name.sock {socket.gethostname()}")
    assert second == f"http://127.0.0.1:8470/?token={token}"


def test_where_no_page_is_served_it_says_so(andrea: Andrea, run: RunDir, tmp_path: Path) -> None:
    door.open_at(run, "127.0.0.1:8123")  # as a proxy that has ended leaves it
    done = andrea("url", run.root)
    assert done.code == 1 and "no page is served" in done.err and "andrea-proxy" in done.err
    with Lock.acquire(run.proxy_lock, identity.me()):
        door.open_at(run, None)
        done = andrea("url", run.root)
        assert done.code == 1 and "--no-web" in done.err
    assert "no run here" in andrea("url", tmp_path / "nothing").err
