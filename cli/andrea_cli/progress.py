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
        self._last: Progress | None = None
        self._next = 0.0
        if sys.stderr.isatty():
            self._bars = _bars()

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._end(self._bars)
            self._bars.stop()

    def tell(self, progress: Progress) -> None:
        """How far one arm is; an act's last word is shown, those between now and then."""
        if self._bars is None:
            return
        now, last = time.monotonic(), self._last
        another = last is None or (last.act, last.arm) != (progress.act, progress.arm)
        if another:
            self._end(self._bars)
            self._task = self._bars.add_task(f"{progress.act} {progress.arm}", total=progress.size, counts="")
        self._last = progress
        if another or now >= self._next:
            self._next = now + REDRAW_SECONDS
            self._show(self._bars, progress)

    def _show(self, bars: rich.progress.Progress, progress: Progress) -> None:
        assert self._task is not None, "its bar has been added"
        tokens = f", {progress.tokens:,} tokens" if progress.tokens else ""
        counts = f"{output.size(progress.bytes)}, {progress.documents:,} documents{tokens}"
        bars.update(self._task, completed=progress.read, counts=counts)

    def _end(self, bars: rich.progress.Progress) -> None:
        """Show where the act under way came to, and take its bar away."""
        if self._task is not None and self._last is not None:
            self._show(bars, self._last)
            bars.refresh()
            bars.remove_task(self._task)
            self._task = None


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
