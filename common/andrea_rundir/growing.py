"""A file that is added to in place, and made durable: after a failed fsync by a new file under its name.

Promises that a failed fsync is never tried again on the same file (the kernel may have dropped the pages and call them
clean: Rebello et al., USENIX ATC 2020), and that what is added lies in the file that has the name. Imports the standard
library, our faults and publish.
"""

from __future__ import annotations

import os
from pathlib import Path

from andrea_rundir.faults import about
from andrea_rundir.publish import publish, stands


class Growing:
    """An open file; `fd` is a descriptor of the one that is called `path`, and may be another after `sync`."""

    def __init__(self, path: Path, flags: int = 0) -> None:
        """Opens it for reading and writing, with more `flags` of open(2). OSError."""
        self.path, self._flags = path, os.O_RDWR | os.O_CLOEXEC | flags
        self.fd = os.open(path, self._flags, 0o640)
        self._failed = False

    def sync(self) -> None:
        """Make all of it durable. OSError when it is not; the next call tries again, and never by a mere fsync."""
        if not self._failed:
            try:
                os.fsync(self.fd)
            except OSError:
                self._failed = True
        if self._failed:
            self._renew()

    def stands(self) -> bool:
        """Whether it is the file that has the name, still: False where somebody has removed or replaced that."""
        return stands(self.fd, self.path)

    def close(self) -> None:
        """Let go."""
        os.close(self.fd)

    def _renew(self) -> None:
        with about(self.path), open(self.fd, "rb", closefd=False) as file:
            file.seek(0)
            data = file.read()
        try:
            publish(self.path, data)
        finally:  # even then the name may be the new file's already
            fd = os.open(self.path, self._flags & ~os.O_CREAT)
            os.close(self.fd)
            self.fd = fd
        self._failed = False
