from __future__ import annotations

import stat
from pathlib import Path

import pytest

from andrea_rundir import door
from andrea_rundir.names import RunDir


def test_the_token_stays_and_the_address_follows(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert door.read(run) is None
    first = door.open_at(run, "127.0.0.1:8470")
    second = door.open_at(run, None)
    assert first.token == second.token and len(first.token) > 40 and door.read(run) == second
    assert stat.S_IMODE(run.page.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_what_others_could_read_is_no_secret(tmp_path: Path, mode: int) -> None:
    run = RunDir(tmp_path)
    first = door.open_at(run, "a")
    run.page.chmod(mode)
    assert door.read(run) is None
    assert door.open_at(run, "a").token != first.token


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema":1}', '{"schema":1,"address":"a","token":"short"}', '{"schema":1,"token":7}']
)
def test_what_cannot_be_used_is_made_anew(tmp_path: Path, text: str) -> None:
    run = RunDir(tmp_path)
    run.page.touch(0o600)
    run.page.write_text(text)
    assert door.read(run) is None
    assert door.open_at(run, "a") == door.read(run)
