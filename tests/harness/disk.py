"""A disk that stands still, or nearly: the kernel's own freezing of a file system, on the machine's disk of runs."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FREEZE, THAW = 0xC0045877, 0xC0045878  # FIFREEZE, FITHAW of linux/fs.h
BREATH_SECONDS = 0.002
"""Enough for whoever waits: the kernel hands the way on as it thaws. In more, a quick disk takes several pieces."""


@contextmanager
def hanging(mount: Path) -> Iterator[None]:
    """Whoever writes waits until the end of the block."""
    fd = os.open(mount, os.O_RDONLY)
    fcntl.ioctl(fd, FREEZE, 0)
    try:
        yield
    finally:
        fcntl.ioctl(fd, THAW, 0)
        os.close(fd)


@contextmanager
def slow(mount: Path, stall: float) -> Iterator[None]:
    """Whoever writes waits for `stall` seconds about every piece."""
    done = threading.Event()

    def stutter() -> None:
        while not done.is_set():
            with hanging(mount):
                done.wait(stall)
            time.sleep(BREATH_SECONDS)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
