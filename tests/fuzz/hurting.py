"""One file of a run hurt for a moment, with a bound on time and on memory meanwhile."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

LONGEST = 20.0
"""Seconds that one reading of one small file may take, on a machine that has other things to do."""

MEMORY = 384 << 20
"""Bytes of address space that one reading may take: threads' stacks and arenas need some of it."""


@contextmanager
def hurt(path: Path, data: bytes) -> Iterator[None]:
    """The file holds `data` inside the block and what it held before after it."""
    good = path.read_bytes()
    path.write_bytes(data)
    try:
        with bounded():
            yield
    finally:
        path.write_bytes(good)


@contextmanager
def bounded() -> Iterator[None]:
    """What hangs ends in an AssertionError, what takes far more memory than a small file is large in a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, _late)
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGALRM, handler)


def _late(number: int, frame: FrameType | None) -> None:
    raise AssertionError("it hangs")
