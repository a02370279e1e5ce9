"""A checkpoint of a run at work, opened, verified and copied.

Promises that retention can take nothing away once it is open, and that a copy is what was verified. Writes the copy.
Imports `andrea_rundir`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from andrea_cli.stock import nearest, stock
from andrea_rundir import checkpoint, digests, inspection
from andrea_rundir.excerpt import Origins, origins
from andrea_rundir.faults import Refused, about
from andrea_rundir.names import RunDir, checkpoint_name

_FICLONE = 0x40049409
"""ioctl of linux/fs.h: the file gets the other's blocks, shared until one of them is written."""


@dataclass(frozen=True)
class Source:
    """An open checkpoint of a run: what retention removes meanwhile can still be read."""

    run: RunDir
    step: int
    path: Path
    fd: int
    line: str | None
    """Its digest in SHA256SUMS."""


@contextmanager
def opened(run: RunDir, step: int) -> Iterator[Source]:
    """The checkpoint of a step; Refused, naming the nearest that there are, when there is none."""
    lines = digests.read(run.sums)  # before the file: its line goes after it
    there = stock(run)
    for path in there.get(step, ()):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # pruned since it was listed
            continue
        try:
            yield Source(run, step, path, fd, lines.get(checkpoint_name(step)))
        finally:
            os.close(fd)
        return
    there.pop(step, None)
    raise Refused(
        f"no checkpoint of step {step}", where=str(run.root), found=nearest(there, step), expected="a checkpoint"
    )


def copied(source: Source, branch: RunDir, n_params: int) -> Verified:
    """Bring the checkpoint, verified as it lies in the branch. Refused when it is bad."""
    target = branch.checkpoint(source.step)
    copy(source.fd, target)
    found = verified(source, target, n_params)
    digests.record(branch.sums, target.name, found.digest)
    return found


@dataclass(frozen=True)
class Verified:
    """A checkpoint that a run can go on from, and what the events say of it."""

    digest: str
    size: int
    known: bool
    """Whether a digest was on record, and this is it."""
    history: Origins


def verified(source: Source, path: Path, n_params: int) -> Verified:
    """Read `path`, the checkpoint or a copy of it, from end to end. Refused with the reason when it is bad."""

    def bad(found: str, expected: str = "") -> Refused:
        return Refused("not a usable checkpoint", where=str(source.path), found=found, expected=expected)

    try:
        facts = inspection.inspect(path)
    except checkpoint.Invalid as reason:
        raise bad(str(reason)) from None
    if facts.problem is not None or facts.n_params != n_params:
        raise bad(facts.problem or f"{facts.n_params:,} parameters", f"a checkpoint of {n_params:,} parameters")
    history = origins(source.run.events, source.step, facts.digest)
    on_record = {source.line} if source.line is not None else history.digests
    if on_record and facts.digest not in on_record:
        raise bad(f"SHA-256 {facts.digest}", f"SHA-256 {' or '.join(sorted(on_record))}")
    return Verified(facts.digest, facts.size, bool(on_record), history)


def copy(fd: int, target: Path) -> None:
    """A durable copy; on file systems that can, it shares the blocks and costs nothing."""
    with about(target), target.open("xb") as file:
        target.chmod(0o640)
        try:
            fcntl.ioctl(file.fileno(), _FICLONE, fd)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            os.lseek(fd, 0, os.SEEK_SET)
            with os.fdopen(os.dup(fd), "rb") as original:
                shutil.copyfileobj(original, file, 16 << 20)
        file.flush()
        os.fsync(file.fileno())
