"""A directory that is made whole or not at all: built under a hidden name beside its place, then renamed.

What a killed process left under such a name is removed by the next one that makes a directory of that name. Writes only
beside the target. Imports `andrea_rundir`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from andrea_rundir.faults import Refused
from andrea_rundir.filesystem import refuse_network
from andrea_rundir.publish import fsync_dir


def vacant(path: Path, what: str = "the run directory") -> Path:
    """The real path of a directory that can be made; Refused, or BadConfig on a network file system, if not."""
    target = Path(os.path.realpath(path))
    refuse_network(target)
    for around in target.parents:
        if (around / "run.toml").exists() and (around / "data" / "sources.json").exists():  # a template is no run
            raise Refused(
                f"{what} would lie inside a run",
                where=str(target),
                found=f"{around} is one",
                todo="choose a place beside it: what is inside goes where the run goes, also when it is removed",
            )
    if not os.path.lexists(target):
        return target
    if not target.is_dir():
        raise Refused(f"{what} is a file", where=str(target), expected="a path where nothing is yet")
    if names := sorted(child.name for child in target.iterdir()):
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise Refused(
            f"{what} is not empty",
            where=str(target),
            found=names[0] + more,
            expected="no such directory yet, or an empty one",
            todo="choose another path, or move that directory away",
        )
    if target.is_mount():
        raise Refused(
            f"{what} is a mount point",
            where=str(target),
            expected="a directory that can be renamed",
            todo="choose a directory inside it",
        )
    return target


@contextmanager
def building(target: Path, what: str = "the run directory") -> Iterator[Path]:
    """Gives a scratch directory that becomes `target` at the end; if anything fails, nothing is left.

    `target` comes from `vacant`. SIGTERM counts as a failure too.
    """
    before = signal.signal(signal.SIGTERM, _leave)
    scratch = target.parent / f".{target.name}.{os.getpid()}.tmp"
    made: list[Path] = []
    lock = -1
    try:
        with _saying(target, what):
            for folder in _missing(target.parent):
                folder.mkdir(mode=0o755)
                made.append(folder)
            _sweep(target)
            scratch.mkdir(mode=0o750)
            lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)  # tells others that we live
        yield scratch
        for inside, _, _ in os.walk(scratch):
            fsync_dir(Path(inside))
        with _saying(target, what):  # somebody may have been faster
            scratch.rename(target)
        fsync_dir(target.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        if lock >= 0:
            os.close(lock)


def _sweep(target: Path) -> None:
    """Remove what processes that are gone have left of `target`."""
    leftover = re.compile(rf"\.{re.escape(target.name)}\.\d+\.tmp")
    for path in [path for path in target.parent.iterdir() if leftover.fullmatch(path.name)]:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
        except BlockingIOError:  # its maker lives
            pass
        finally:
            os.close(fd)


def _missing(folder: Path) -> list[Path]:
    """The folders that are not there yet, outermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()][::-1]


@contextmanager
def _saying(target: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        raise Refused(f"{what} cannot be made", where=str(target), found=found) from None


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
