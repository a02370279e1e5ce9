"""The watch: wakes the proxy when a file it waits for may have changed.

File events are hints and nothing more: whoever is woken looks for himself, and looks every few seconds whatever
happens. Where the kernel gives no events (their number is limited) it looks more often, and says so. Writes no file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

from watchdog.events import (
    DirCreatedEvent,
    FileCreatedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

from andrea_rundir.names import RunDir

RESCAN_SECONDS = 2.0
POLL_SECONDS = 0.1
PAUSE_SECONDS = 0.02
"""Between two looks: what comes in a burst is taken at once."""


class Watch(FileSystemEventHandler):
    """Watches a run's events and its requests. `wait` returns when there may be something new."""

    def __init__(self, run: RunDir, say: Callable[[str], None]) -> None:
        self._run, self._say = run, say
        self._hint = threading.Event()
        self._observer = Observer()
        self._events_watched = False
        self._rescan = RESCAN_SECONDS

    def __enter__(self) -> Self:
        try:
            kinds: list[type[FileSystemEvent]] = [FileCreatedEvent, FileMovedEvent, DirCreatedEvent]
            self._observer.schedule(self, self._run.root, event_filter=kinds)
            self._watch_events()
            self._observer.start()
        except OSError as error:
            self._poll(error)
        return self

    def __exit__(self, *_: object) -> None:
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """A hint, on the observer's thread. Our own files lie in the same folder and are none."""
        path = str(event.dest_path or event.src_path)
        if path.endswith((".jsonl", self._run.policy_next.name, self._run.events.name)):
            self._hint.set()

    def wait(self, stopping: Callable[[], bool]) -> None:
        """Until there is a hint, or it is time to look anyway, or `stopping()`."""
        if self._observer.is_alive() and not self._events_watched:
            try:
                self._watch_events()
            except OSError as error:
                self._poll(error)
        left = self._rescan
        while left > 0 and not stopping() and not self._hint.wait(min(left, POLL_SECONDS)):
            left -= POLL_SECONDS
        if self._hint.is_set():
            time.sleep(PAUSE_SECONDS)
        self._hint.clear()

    def _watch_events(self) -> None:
        """The folder is made by the trainer's first start."""
        if self._run.events.is_dir():
            self._observer.schedule(self, self._run.events, event_filter=[FileCreatedEvent, FileModifiedEvent])
            self._events_watched = True

    def _poll(self, error: OSError) -> None:
        self._rescan, self._events_watched = POLL_SECONDS, True
        self._say(f"no file events from the kernel ({error.strerror}): looking {1 / POLL_SECONDS:.0f} times a second")
