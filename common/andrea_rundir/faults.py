"""What went wrong, said so that an operator can act on it: the one family of errors of the project.

Every fault says what, where, what was found, what was expected and what to do next, and carries the exit
code of the process that ends by it. Imports nothing of ours.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_DEVICE = 69
EXIT_HELD = 75
EXIT_CONFIG = 78


class Fault(Exception):
    """An error of the operator's world (files, values, devices), never a bug: shown without a traceback."""

    exit_code = EXIT_REFUSED

    def __init__(self, what: str, *, where: str = "", found: str = "", expected: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.found = found
        self.expected = expected
        self.todo = todo

    def lines(self) -> list[str]:
        """The message, one fact a line: the sentence first, then where, found, expected, what to do.

        A fact of several lines goes on below, indented.
        """
        facts = (("where:", self.where), ("found:", self.found), ("expected:", self.expected), ("to do:", self.todo))
        shown = [self.what]
        for name, text in facts:
            for number, line in enumerate(text.splitlines()):
                shown.append(f"{'' if number else name:<9} {line}")
        return shown

    def __str__(self) -> str:
        return "\n".join(self.lines())


class Refused(Fault):
    """A request that cannot be carried out; nothing was changed."""

    exit_code = EXIT_REFUSED


class Usage(Fault):
    """A command line that makes no sense."""

    exit_code = EXIT_USAGE


class NoDevice(Fault):
    """The pinned device cannot be used now; the service manager tries again."""

    exit_code = EXIT_DEVICE


class Held(Fault):
    """Another process holds the lock of this run."""

    exit_code = EXIT_HELD


class BadConfig(Fault):
    """A configuration, policy or source that cannot be used."""

    exit_code = EXIT_CONFIG


class NoCheckpoint(Fault):
    """Checkpoints are there and none of them is usable."""

    exit_code = EXIT_CONFIG


class Halt(Fault):
    """The run stopped itself after `step`: diverged, regressed or its samples collapsed."""

    exit_code = EXIT_CONFIG

    def __init__(self, what: str, *, step: int, todo: str) -> None:
        super().__init__(what, todo=todo)
        self.step = step


SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Refusals that say nothing of a file: the process or the machine is short of something, for the moment perhaps."""


def raise_shortage(error: Exception) -> None:
    """Raises a shortage again. What cannot be read for want of a descriptor is neither missing nor damaged: who takes
    it for that ends a run for good, or plans it another way."""
    if isinstance(error, OSError) and error.errno in SHORTAGE:
        raise error


@contextmanager
def about(path: Path) -> Iterator[None]:
    """An OSError of a call on an open file says which file that was: such a call knows but a number."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
