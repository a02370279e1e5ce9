"""The checkpoint that a run goes on from: the newest valid one, verified while it is read.

Writes nothing; `set_aside` renames what was passed over. Imports our checkpoint, scan, digests, names, publish, faults.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from andrea_rundir import digests
from andrea_rundir.checkpoint import HEADER, Invalid, file_size, header_of, opened, unsound
from andrea_rundir.faults import NoCheckpoint
from andrea_rundir.names import RunDir
from andrea_rundir.publish import aside, fsync_dir
from andrea_rundir.scan import Look, scan


@dataclass(frozen=True)
class Passed:
    """A candidate that was not used, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Choice:
    """The checkpoint to resume from, already taken over, and every newer one that was passed over."""

    step: int
    path: Path
    digest: str
    has_digest_line: bool
    passed: list[Passed] = field(default_factory=list)


def load(path: Path, take: Look, *, step: int, n_params: int, digest: str | None) -> str:
    """Verifies the file while `take` is shown all of it, on a thread of its own; returns its SHA-256 in hex.

    `digest`: what it should be, None when nothing is on record. Invalid says what was found and expected: nothing
    that was taken counts then.
    """
    bad: list[str] = []

    def look(start: int, piece: memoryview) -> None:
        take(start, piece)
        if reason := unsound(start, piece, n_params):
            bad.append(reason)

    with opened(path) as (fd, size):
        if size != file_size(n_params):
            raise Invalid(f"{size} bytes, expected {file_size(n_params)} for {n_params} parameters")
        header = header_of(os.pread(fd, HEADER.size, 0), size)
        if header.step != step:
            raise Invalid(f"the header says step {header.step}, expected {step}")
        found = scan(fd, size, look)
    if digest is not None and found != digest:
        raise Invalid(f"SHA-256 is {found}, expected {digest}")
    if bad:
        raise Invalid(bad[0])
    return found


def choose(run: RunDir, take: Look, *, n_params: int) -> Choice | None:
    """Finds the newest valid checkpoint of `run`, of all the last that `take` is shown; None when there is no file of
    that name.

    NoCheckpoint, with every candidate and reason, when there are some and none is valid. A file without a
    digest line is used (`has_digest_line` tells); one that the line contradicts is not.
    """
    candidates = run.checkpoints()
    lines: dict[str, str] = {}
    with suppress(OSError):  # an unreadable list is as good as none: the caller warns of each missing line
        lines = digests.read(run.sums)
    passed: list[Passed] = []
    for step, path in reversed(candidates.items()):
        line = lines.get(path.name)
        try:
            digest = load(path, take, step=step, n_params=n_params, digest=line)
        except Invalid as reason:
            passed.append(Passed(path, str(reason)))
        else:
            return Choice(step, path, digest, line is not None, passed)
    if not passed:
        return None
    raise NoCheckpoint(
        "no checkpoint of this run can be used",
        where=str(run.root),
        found="\n".join(f"{p.path.name}: {p.reason}" for p in passed),
        expected=f"one valid file of {n_params} parameters",
        todo="bring one back from a copy, or start a new run with `andrea init RUN --from FILE.bin`",
    )


def set_aside(path: Path) -> Path:
    """Renames a file that was passed over to `NAME.bad`, `.bad2`, ...; nothing is overwritten or deleted."""
    target = aside(path)
    path.rename(target)
    fsync_dir(path.parent)
    return target
