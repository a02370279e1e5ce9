from __future__ import annotations

import socket
from pathlib import Path

import pytest

from andrea_rundir import door
from andrea_rundir.names import RunDir
from harness.commands import Andrea


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    found = RunDir(tmp_path / "run")
    found.root.mkdir()
    found.run_toml.write_text("")
    return found


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


def test_by_a_unix_socket(andrea: Andrea, run: RunDir) -> None:
    token = door.open_at(run, "/run/andrea/name.sock").token
    first, second = andrea("url", run.root).out.splitlines()
    assert first.endswith(f"ssh -L 8470:/run/andrea/name.sock {socket.gethostname()}")
    assert second == f"http://127.0.0.1:8470/?token={token}"


def test_where_no_page_is_served_it_says_so(andrea: Andrea, run: RunDir, tmp_path: Path) -> None:
    done = andrea("url", run.root)
    assert done.code == 1 and "no page is served" in done.err and "--no-web" in done.err
    door.open_at(run, None)
    assert andrea("url", run.root).code == 1
    assert "no run here" in andrea("url", tmp_path / "nothing").err
