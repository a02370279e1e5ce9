"""`andrea status --watch`: on a terminal, on a dumb one, into a pipe; Ctrl-C is its regular end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from andrea_cli.redraw import CLEAR, HOME
from andrea_rundir.names import RunDir
from harness.commands import Andrea


def watching(run: RunDir, out: int, *arguments: str, term: str = "xterm") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "andrea_cli.main", "status", str(run.root), "--watch", "0.05", *arguments]
    environment = {**os.environ, "TERM": term}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, env=environment)


def read_until(fd: int, text: bytes, count: int) -> bytes:
    """What comes until `text` has come `count` times."""
    found = b""
    while found.count(text) < count:
        found += os.read(fd, 4096)
    return found


def interrupted(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_on_a_terminal(made_up: RunDir, term: str) -> None:
    ours, theirs = pty.openpty()
    with watching(made_up, theirs, term=term) as process:
        os.close(theirs)
        shown = read_until(ours, b"checkpoint: none yet", 3)
        interrupted(process)
    os.close(ours)
    if term == "dumb":
        assert b"\x1b" not in shown
    else:
        assert shown.count(CLEAR.encode()) == 1 and shown.count(HOME.encode()) >= 3


def test_into_a_pipe_an_object_a_line(made_up: RunDir, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    with watching(made_up, theirs, "--json") as process:
        os.close(theirs)
        shown = read_until(ours, b"\n", 3)
        interrupted(process)
    os.close(ours)
    assert [json.loads(line)["state"] for line in shown.splitlines()[:3]] == ["stopped"] * 3


def test_what_makes_no_sense(andrea: Andrea, made_up: RunDir) -> None:
    assert andrea("status", made_up.root, "--watch", "0").code == 2
    assert andrea("status", made_up.root, "--watch", "soon").code == 2
    assert andrea("status", made_up.root, "--watch", "--verify").code == 2
    assert andrea("status", made_up.root.parent / "none", "--watch").code == 1
