"""What happened, for the page: the events but for the many that are figures, followed from the first to the newest.

Keeps every probe, audit figure and start, and the newest of all others. Lines of steps are not parsed, so a long
history costs one reading. Reads only. Standard library and `andrea_rundir.events`.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from andrea_rundir.events import Event, parse, segments
from andrea_rundir.shapes import is_whole

SHOWN = 200
"""Events kept for the list."""
_PIECE = 1 << 20
_FREQUENT = (b'{"event":"step"', b'{"event":"snapshot"', b'{"event":"card"', b'{"event":"round"')


class Past:
    """Follows the events of one run; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Reads nothing yet."""
        self._folder, self._lock = folder, threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._first, self._segment, self._offset = (0, 0), "", 0
        self.probes: dict[int, Event] = {}
        """The last one of each step."""
        self.audits: dict[int, Event] = {}
        """The same, without the texts."""
        self.starts: list[Event] = []
        """Without configuration and policy."""
        self.warnings: deque[Event] = deque(maxlen=SHOWN)
        """Since the last start."""
        self.newest: deque[Event] = deque(maxlen=SHOWN)
        """Everything that is for the list, oldest first."""

    def update(self) -> None:
        """Take what has been added. Another first segment is another history: it is read from its beginning."""
        with self._lock:
            listed = segments(self._folder)
            first = listed[0].stat() if listed else None
            here = (first.st_dev, first.st_ino) if first else (0, 0)
            if here != self._first:
                self._forget()
                self._first = here
            for path in listed:
                if path.name >= self._segment:
                    self._follow(path)

    def _follow(self, path: Path) -> None:
        if path.name != self._segment:
            self._segment, self._offset = path.name, 0
        with path.open("rb") as file:
            file.seek(self._offset)
            while data := file.read(_PIECE):
                if b"\n" not in data:
                    return
                lines = data.split(b"\n")[:-1]
                for line in lines:
                    if not line.startswith(_FREQUENT):
                        self._take(line)
                self._offset += sum(map(len, lines)) + len(lines)
                file.seek(self._offset)

    def _take(self, line: bytes) -> None:
        try:
            event = parse(line)
            kind, step = event["event"], event.get("step")
        except ValueError:
            return
        if kind in ("probe", "audit") and isinstance(step, int) and is_whole(event):
            (self.probes if kind == "probe" else self.audits)[step] = event
        if kind == "audit":
            event.pop("samples", None)
        if kind == "start":
            event = {name: event.get(name) for name in ("event", "time", "step", "attempt", "device", "andrea", "card")}
            self.starts.append(event)
            self.warnings.clear()
        if kind == "warning":
            self.warnings.append(event)
        if kind == "fallback":
            event = {name: event.get(name) for name in ("event", "time", "first", "last", "reason", "round")}
        self.newest.append(event)
