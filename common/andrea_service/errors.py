"""The outermost frame of every program: an operator's error is told in words, a bug with a traceback.

Writes to stderr only. Imports `andrea_rundir.faults` and the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable

from andrea_rundir.faults import EXIT_REFUSED, SHORTAGE, Fault

EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

# What the machine refuses, rather than what we did wrong.
_OPERATOR = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO),
    *SHORTAGE,
    errno.EINTR,
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR),
)


def boundary(main: Callable[[], int], program: str) -> int:
    """Run `main`; return its exit code, a Fault's, 130, 141, or 70 for a bug. SystemExit passes."""
    try:
        code = main()
    except Fault as fault:
        _say(program, fault.lines())
        code = fault.exit_code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_BROKEN_PIPE
    except OSError as error:
        code = _refused(program, error) if error.errno in _OPERATOR else _bug(program)
    except Exception:
        code = _bug(program)
    return _flushed(program, code)


def _flushed(program: str, code: int) -> int:
    """The exit code once what was printed is out: 0 means that it was. A reader may leave early (`| head`)."""
    try:
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()
    except OSError as error:
        # What is still buffered must not fail once more at the interpreter's exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
        if code == 0:
            code = EXIT_BROKEN_PIPE if error.errno == errno.EPIPE else _refused(program, error)
    return code


def _refused(program: str, error: OSError) -> int:
    where = [f"where:    {name}" for name in (error.filename, error.filename2) if name is not None]
    _say(program, [error.strerror or str(error), *where])
    return EXIT_REFUSED


def _bug(program: str) -> int:
    _say(program, [*traceback.format_exc().splitlines(), "this is a bug: please report the lines above"])
    return EXIT_BUG


def _say(program: str, lines: list[str]) -> None:
    """The last word, to a stderr that may be closed."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            # The journal takes <3> for "error" (sd-daemon(3)), line by line.
            mark = "<3>" if _is_journal() else ""
            sys.stderr.write(f"{mark}{program}: " + f"\n{mark}  ".join(lines) + "\n")
            sys.stderr.flush()


def _is_journal() -> bool:
    """Whether stderr is the one that the service manager connected to its journal."""
    stream = os.environ.get("JOURNAL_STREAM")
    if stream is None:
        return False
    stat = os.fstat(2)
    return stream == f"{stat.st_dev}:{stat.st_ino}"
