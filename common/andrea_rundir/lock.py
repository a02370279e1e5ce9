"""Who works on a run: a lock that dies with its holder, and the pid file that says where to find it.

Writes `train.lock`/`proxy.lock` (never unlinked) and `train.pid`/`proxy.pid`, each by its own service.
Imports the standard library and our publish and faults.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from andrea_rundir import jsontext
from andrea_rundir.faults import Held, Refused, about
from andrea_rundir.publish import publish, stands, write_at

_RETRY = 0.02
"""Seconds between two tries while a prober may be looking."""

_mine: set[Lock] = set()


class Lock:
    """An exclusive flock on an open file. It is given up by closing, never by LOCK_UN: a forked child shares
    the open file, and unlocking there would unlock here too."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def acquire(cls, path: Path, identity: dict[str, object], *, patience: float = 1.0) -> Lock:
        """Takes the lock and writes `identity` into the file; Held when another process keeps it.

        `patience`: seconds to go on trying, since a prober holds the lock for a moment.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            with about(path):
                _take(fd, path, time.monotonic() + patience)
                line = json.dumps(identity).encode() + b"\n"
                # Written before the old rest is cut: it needs no new block, and the first line is always whole.
                write_at(fd, line, 0)
                os.ftruncate(fd, len(line))
        except BaseException:
            os.close(fd)
            raise
        lock = cls(path, fd)
        _mine.add(lock)
        return lock

    def stands(self) -> bool:
        """Whether the file we hold is the one under its name, as far as can be seen."""
        return stands(self._fd, self.path)

    def release(self) -> None:
        """Gives the lock up. The file and what it says stay. A second call does nothing."""
        if self in _mine:
            _mine.remove(self)
            os.close(self._fd)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def gone() -> Refused | None:
    """Why a lock of ours keeps nobody away any more: its run was removed, moved or replaced. Nothing that is saved from
    then on could be found again."""
    for lock in _mine:
        if not lock.stands():
            return Refused(
                "the run is no longer where it was",
                where=str(lock.path.parent),
                found=f"{lock.path.name} is {'another file' if lock.path.exists() else 'gone'}",
                expected=f"the {lock.path.name} that this process holds",
                todo="bring the run back, or start it where it is now: it goes on from its newest checkpoint",
            )
    return None


def demand_standing() -> None:
    """Refused where a run of ours is `gone`."""
    if (why := gone()) is not None:
        raise why


@dataclass(frozen=True)
class Probe:
    """What a reader can know: is the lock held now, and who wrote the file last (None: cannot be read)."""

    held: bool
    identity: dict[str, object] | None


def probe(path: Path) -> Probe:
    """Looks without taking part: creates nothing, keeps nothing. OSError when the file cannot be opened."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Probe(False, None)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        held = False
    except BlockingIOError:
        held = True
    finally:
        identity = _identity(fd)
        os.close(fd)
    return Probe(held, identity)


def write_pidfile(path: Path, pid: int) -> None:
    """One decimal line, replaced atomically."""
    publish(path, b"%d\n" % pid)


def read_pidfile(path: Path) -> int | None:
    """The number in the file; None when there is no file or no number in it."""
    try:
        text = path.read_bytes().strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdigit() and len(text) < 10 else None


def remove_pidfile(path: Path, pid: int) -> None:
    """Removes the file if it still holds our `pid`; a successor's stays."""
    if read_pidfile(path) == pid:
        path.unlink(missing_ok=True)


def _take(fd: int, path: Path, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise _held(path, _identity(fd)) from None
        time.sleep(_RETRY)


def _held(path: Path, identity: dict[str, object] | None) -> Held:
    holder = "a process that has not written who it is"
    if identity is not None:
        holder = f"pid {identity.get('pid', '?')} on host {identity.get('host', '?')}"
    return Held(
        "another process works on this run",
        where=str(path),
        found=f"the lock is held by {holder}",
        expected="a lock that nobody holds",
        todo="`andrea status` says what it does; stop it before starting another",
    )


def _identity(fd: int) -> dict[str, object] | None:
    """The first line, if it is a JSON object: a writer may be at work."""
    try:
        content = jsontext.loads(os.pread(fd, 65536, 0).partition(b"\n")[0])
    except (ValueError, OSError):
        return None
    return content if isinstance(content, dict) else None


def _close_in_child() -> None:
    """A forked child must not keep the lock alive after its parent."""
    for lock in _mine:
        os.close(lock._fd)
    _mine.clear()


os.register_at_fork(after_in_child=_close_in_child)
