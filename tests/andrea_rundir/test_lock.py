from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from andrea_rundir.faults import Held
from andrea_rundir.lock import Lock, Probe, probe, read_pidfile, remove_pidfile, write_pidfile

HOLD = """
import os, subprocess, sys
from pathlib import Path
from andrea_rundir.lock import Lock
lock = Lock.acquire(Path(sys.argv[1]), {"pid": os.getpid(), "host": "here"})
"""


@contextmanager
def holder(path: Path, more: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock until its input ends."""
    code = HOLD + more + "\nprint('ready', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def test_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "train.lock"
    with holder(path) as process:
        start = time.monotonic()
        with pytest.raises(Held) as raised:
            Lock.acquire(path, {"pid": 1}, patience=0.2)
        assert 0.2 <= time.monotonic() - start < 2
        assert raised.value.exit_code == 75
        assert f"pid {process.pid} on host here" in raised.value.found
        assert probe(path) == Probe(True, {"pid": process.pid, "host": "here"})


def test_the_lock_dies_with_its_holder_whatever_kills_it(tmp_path: Path) -> None:
    path = tmp_path / "train.lock"
    with holder(path) as process:
        process.kill()
        process.wait()
        assert probe(path) == Probe(False, {"pid": process.pid, "host": "here"})
    with Lock.acquire(path, {"pid": 2}):
        assert probe(path) == Probe(True, {"pid": 2})


@pytest.mark.parametrize(
    "child",
    [
        "child = os.fork()\nif child == 0:\n    os.close(0); os.close(1)\n    import time; time.sleep(60)",
        "child = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid",
    ],
    ids=["forked", "executed"],
)
def test_a_child_does_not_keep_the_lock_alive(tmp_path: Path, child: str) -> None:
    path = tmp_path / "train.lock"
    with holder(path, child + "\nPath(sys.argv[1] + '.child').write_text(str(child))") as process:
        assert probe(path).held
        process.kill()
        process.wait()
        sleeper = int(Path(f"{path}.child").read_text())
        assert os.path.exists(f"/proc/{sleeper}")
        deadline = time.monotonic() + 10  # the child closes it as soon as it gets to run
        while probe(path).held and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not probe(path).held
        os.kill(sleeper, 9)


def test_a_child_that_ends_does_not_give_the_lock_up(tmp_path: Path) -> None:
    path = tmp_path / "train.lock"
    code = "child = os.fork()\nif child == 0:\n    lock.release(); sys.exit(0)\nos.waitpid(child, 0)"
    with holder(path, code):
        assert probe(path).held


def test_a_prober_in_the_way_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "train.lock"
    path.touch()
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    later = threading.Timer(0.3, os.close, [fd])
    later.start()
    with Lock.acquire(path, {"pid": 3}, patience=60.0):
        assert probe(path) == Probe(True, {"pid": 3})
    later.join()


def test_probers_do_not_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "train.lock"
    path.touch()
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert not probe(path).held


def test_release_leaves_file_and_identity(tmp_path: Path) -> None:
    path = tmp_path / "train.lock"
    lock = Lock.acquire(path, {"pid": 4, "host": "a-long-host-name"})
    inode = path.stat().st_ino
    lock.release()
    lock.release()
    assert probe(path) == Probe(False, {"pid": 4, "host": "a-long-host-name"})
    with Lock.acquire(path, {"pid": 5}):
        assert path.stat().st_ino == inode
        assert json.loads(path.read_text()) == {"pid": 5}


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    with Lock.acquire(tmp_path / "x", {}), pytest.raises(Held):
        Lock.acquire(tmp_path / "x", {}, patience=0)


def test_a_probe_creates_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    assert probe(tmp_path / "train.lock") == Probe(False, None)
    assert os.listdir(tmp_path) == []
    Lock.acquire(tmp_path / "x", {}).release()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        probe(tmp_path / "x")
    assert len(os.listdir("/proc/self/fd")) == before
    Lock.acquire(tmp_path / "x", {}, patience=0).release()


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": 1', b"[1]", b"\xff\n", b"7\n"])
def test_torn_content_is_no_identity(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    assert probe(tmp_path / "x") == Probe(False, None)
    with holder(tmp_path / "x"):
        (tmp_path / "x").write_bytes(content)
        assert probe(tmp_path / "x") == Probe(True, None)
        with pytest.raises(Held, match="has not written who it is"):
            Lock.acquire(tmp_path / "x", {}, patience=0)


def test_the_rest_of_a_longer_identity_does_not_spoil_a_shorter_one(tmp_path: Path) -> None:
    """What a reader may see between the write and the cut."""
    (tmp_path / "x").write_bytes(b'{"pid": 6}\na-long-host-name"}\n')
    assert probe(tmp_path / "x").identity == {"pid": 6}


def test_a_failed_acquire_leaks_no_descriptor(tmp_path: Path) -> None:
    with Lock.acquire(tmp_path / "x", {}):
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(Held):
            Lock.acquire(tmp_path / "x", {}, patience=0)
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_pid_file_is_a_line_and_only_ours_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "train.pid"
    assert read_pidfile(path) is None
    remove_pidfile(path, 1)
    write_pidfile(path, 4711)
    assert path.read_text() == "4711\n"
    assert read_pidfile(path) == 4711
    remove_pidfile(path, 4712)
    assert path.exists()
    remove_pidfile(path, 4711)
    assert not path.exists()
    for content in ("", "x", "-1", "1 2"):
        path.write_text(content)
        assert read_pidfile(path) is None
