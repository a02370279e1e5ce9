"""Progress of a prepare on a terminal: a bar an act, with bytes, documents, tokens and the time left; silent elsewhere.

Writes to stderr only. Imports rich when there is a terminal.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from andrea_cli import output

if TYPE_CHECKING:
    import rich.progress

    from andrea_corpus.reading import Progress

REDRAW_SECONDS = 0.2


class Bars:
    """Give `tell` to prepare, inside a `with`."""

    def __init__(self) -> None:
        self._bars: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None
        self._shown = ("", "")
        self._next = 0.0
        if sys.stderr.isatty():
            self._bars = _bars()

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def tell(self, progress: Progress) -> None:
        """How far one arm is."""
        now = time.monotonic()
        if self._bars is None or (now < self._next and self._shown == (progress.act, progress.arm)):
            return
        self._next = now + REDRAW_SECONDS
        if self._task is None or self._shown != (progress.act, progress.arm):
            if self._task is not None:
                self._bars.remove_task(self._task)
            self._shown = (progress.act, progress.arm)
            self._task = self._bars.add_task(" ".join(self._shown), total=progress.size, counts="")
        tokens = f", {progress.tokens:,} tokens" if progress.tokens else ""
        counts = f"{output.size(progress.bytes)}, {progress.documents:,} documents{tokens}"
        self._bars.update(self._task, completed=progress.read, counts=counts)


def _bars() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[counts]}", markup=False),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
