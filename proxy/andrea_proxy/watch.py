"""The watch: wakes the proxy when a file it waits for may have changed.

Requests, which are rare, come as file events. The trainer's events, which are many, do not: to be told of one by the
kernel costs half a millisecond in three threads, to look whether there are any a hundredth of that. Either is a hint
and nothing more: whoever is woken looks for himself, and looks every few seconds whatever happens. Where the kernel
gives no file events (their number is limited) it looks more often, and says so. Writes no file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from watchdog.events import FileClosedEvent, FileCreatedEvent, FileMovedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from andrea_rundir.events import segments
from andrea_rundir.names import RunDir

LOOK_SECONDS, LEAST_SECONDS = 0.05, 0.005
"""Between two looks at the trainer's events, where nothing presses and where all does: a burst is taken at once."""
RESCAN_SECONDS = 2.0
POLL_SECONDS = 0.1


class Watch(FileSystemEventHandler):
    """Watches a run's events and its requests. `wait` returns when there may be something new."""

    def __init__(self, run: RunDir, say: Callable[[str], None]) -> None:
        self._run, self._say = run, say
        self._hint = threading.Event()
        self._observer = Observer()
        self._rescan = RESCAN_SECONDS
        self._events = _Growth(run.events)

    def __enter__(self) -> Self:
        try:
            kinds: list[type[FileSystemEvent]] = [FileCreatedEvent, FileClosedEvent, FileMovedEvent]
            self._observer.schedule(self, self._run.root, event_filter=kinds)
            self._observer.start()
        except OSError as error:
            self._rescan = POLL_SECONDS
            often = f"{1 / POLL_SECONDS:.0f} times a second"
            self._say(f"no file events from the kernel ({error.strerror}): looking {often}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """A hint, on the observer's thread. Our own files lie in the same folder and are none."""
        if str(event.dest_path or event.src_path).endswith(self._run.policy_next.name):
            self._hint.set()

    def wait(self, stopping: Callable[[], bool], within: float = LOOK_SECONDS) -> None:
        """Until there is a hint, or it is time to look anyway, or `stopping()`; events are seen `within` seconds."""
        pause, left = min(max(within, LEAST_SECONDS), LOOK_SECONDS), self._rescan
        while left > 0 and not stopping() and not self._hint.wait(min(left, pause)) and not self._events.grew():
            left -= pause
        self._hint.clear()


class _Growth:
    """Whether the events have grown since the last time one asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._newest: Path | None = None
        self._seen = (0, 0)

    def grew(self) -> bool:
        """False as well where there is nothing, and where it cannot be told."""
        try:
            made = self._folder.stat().st_mtime_ns
            if made != self._seen[0] or self._newest is None:
                self._newest = next(reversed(segments(self._folder)), None)
            seen = (made, self._newest.stat().st_size if self._newest is not None else 0)
        except OSError:
            return False
        grew, self._seen = seen != self._seen, seen
        return grew
