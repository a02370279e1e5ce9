"""One file of a run hurt for a moment, with a bound on time and on memory meanwhile."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

LONGEST = 20.0
"""Seconds that one reading of one small file may take, on a machine that has other things to do."""

MEMORY = 96 << 20
"""Bytes of memory of its own that one reading may ask for: its threads' stacks and the pieces that a checkpoint is read
in come to half of it, whatever the file."""


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
    status = Path("/proc/self/status").read_text()
    data = 1024 * int(status.partition("VmData:")[2].split()[0])
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    handler = signal.signal(signal.SIGALRM, _late)
    resource.setrlimit(resource.RLIMIT_DATA, (data + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_DATA, limits)
        signal.signal(signal.SIGALRM, handler)


def _late(number: int, frame: FrameType | None) -> None:
    raise AssertionError("it hangs")
