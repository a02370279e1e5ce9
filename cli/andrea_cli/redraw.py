"""The same lines again and again, until Ctrl-C.

Promises that a terminal shows one block that changes in place, cut to its size, and that anything less able (a dumb
terminal, a pipe, a file) gets plain blocks, one below the other. Writes to stdout only. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence

CLEAR, HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"
"""ECMA-48 sequences that every terminal of the last decades knows."""


def redraw(draw: Callable[[], Sequence[str]], seconds: float) -> None:
    """Draw every so many seconds; Ctrl-C ends it, which is no error."""
    able = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    try:
        print(CLEAR if able else "", end="")
        while True:
            lines = draw()
            if able:
                wide, high = shutil.get_terminal_size()
                shown = [line[: wide - 1] + CLEAR_LINE for line in lines[: high - 1]]
                print(HOME, *(line + "\n" for line in shown), CLEAR_BELOW, sep="", end="", flush=True)
            else:
                print("\n".join(lines), flush=True)
            time.sleep(seconds)
    except KeyboardInterrupt:
        return
