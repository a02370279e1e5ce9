"""What happened to a run: one JSON object a line, in numbered segments, written by the trainer only.

Writes `events/NNNNNN.jsonl`. Imports the standard library and our publish. A line is written at once and made
durable by `sync`. What cannot be written waits in memory and goes first when space is back: no event is lost
while the process lives, and none overtakes another. Readers may meet an event twice, after a failed fsync.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from andrea_rundir import jsontext, shapes
from andrea_rundir.lines import back
from andrea_rundir.publish import fsync_dir

Event = dict[str, Any]
"""`event` (its kind), `time` (UTC, milliseconds), and the fields of that kind."""

_SEGMENT = re.compile(r"(\d{6,})\.jsonl", re.ASCII)
_STEP = b'{"event":"step",'
_PIECE = 256 << 10
_MOST = 512 << 10
"""Bytes of events that a tail gives at once: with a history of millions, memory is bounded by this."""


@dataclass
class _Segment:
    """The file being written. `unsynced`: its lines since the last good fsync, written anew if one fails."""

    path: Path
    fd: int
    size: int = 0
    unsynced: list[bytes] = field(default_factory=list)


class EventLog:
    """The one writer. Safe to use from two threads: `sync` does not hold up `append` while the disk works."""

    def __init__(
        self,
        folder: Path,
        *,
        limit: int = 64 << 20,
        rotate: int = 64 << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`limit`: bytes that may wait in memory. `rotate`: bytes after which a new segment begins.

        The folder is made when it is missing; OSError when that cannot be done.
        """
        self.trouble: str | None = None
        self._folder, self._limit, self._rotate, self._clock = folder, limit, rotate, clock
        self._lock, self._syncing = threading.Lock(), threading.Lock()
        self._segment: _Segment | None = None
        self._lines: deque[bytes] = deque()
        self._offset = 0  # bytes of the first waiting line that are already in the segment
        self._bytes = 0
        folder.mkdir(exist_ok=True)
        fsync_dir(folder.parent)

    @property
    def waiting(self) -> int:
        """Bytes that could not be written yet."""
        return self._bytes

    @property
    def full(self) -> bool:
        """Whether so much waits that the trainer has to pause."""
        return self._bytes >= self._limit

    def append(self, kind: str, /, **fields: object) -> None:
        """Writes one event, now if possible. ValueError for NaN and infinity; never OSError."""
        line = encode(kind, self._clock(), fields)
        with self._lock:
            self._lines.append(line)
            self._bytes += len(line)
            self._write()
            due = self._segment is not None and self._segment.size >= self._rotate
        if due:
            self.sync()

    def flush(self) -> bool:
        """Tries again to write what waits; True if nothing is left waiting."""
        with self._lock:
            return self._write()

    def sync(self) -> bool:
        """Makes all events appended before this call durable; False, with `trouble`, when that is not so.

        A segment whose fsync fails is never used again: its lines since the last good one are written anew,
        into the next segment, by the next call.
        """
        with self._syncing:
            with self._lock:
                if not self._write():
                    return False
                if self._segment is None:
                    return True  # nothing was ever appended, or all of it is durable in a full segment
                segment, count = self._segment, len(self._segment.unsynced)
            try:
                os.fsync(segment.fd)
            except OSError as error:
                with self._lock:
                    self._give_up(segment, error)
                return False
            with self._lock:
                del segment.unsynced[:count]
                if segment.size >= self._rotate and not segment.unsynced and not self._offset:
                    self._drop(segment)
            return True

    def close(self) -> bool:
        """Syncs, and says whether that worked. The log must not be used afterwards."""
        durable = self.sync() or self.sync()  # after a failed fsync the second one goes to a new segment
        with self._lock:
            if self._segment is not None:
                self._drop(self._segment)
        return durable

    def _write(self) -> bool:
        """Writes waiting lines in order until none is left or the disk refuses."""
        try:
            while self._lines:
                if self._segment is None:
                    self._segment = _next_segment(self._folder)
                segment, line = self._segment, self._lines[0]
                count = os.write(segment.fd, line[self._offset :])
                segment.size += count
                self._offset += count
                self._bytes -= count
                if self._offset == len(line):
                    segment.unsynced.append(self._lines.popleft())
                    self._offset = 0
        except OSError as error:
            self._complain(error)
            return False
        self.trouble = None
        return True

    def _give_up(self, segment: _Segment, error: OSError) -> None:
        """Puts everything that is not known to be durable back, in order, for the next segment."""
        self._lines.extendleft(reversed(segment.unsynced))
        self._bytes += self._offset + sum(map(len, segment.unsynced))
        self._offset = 0
        self._complain(error)
        self._drop(segment)

    def _drop(self, segment: _Segment) -> None:
        os.close(segment.fd)
        self._segment = None

    def _complain(self, error: OSError) -> None:
        where = self._segment.path if self._segment else self._folder
        self.trouble = f"{where}: {error.strerror}; {self._bytes} bytes of events wait in memory"


def encode(kind: str, seconds: float, fields: dict[str, object]) -> bytes:
    """One line. Floats are written by repr, so that they are read back bit for bit."""
    if fields.keys() & {"event", "time"}:
        raise ValueError("an event's kind and time are not fields")
    stamp = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    event = {"event": kind, "time": stamp + "Z", **fields}
    text = json.dumps(event, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.encode(errors="backslashreplace") + b"\n"  # a lone surrogate becomes its JSON escape


def parse(line: bytes) -> Event:
    """The event in a line, each field that is there of its type; ValueError saying what does not fit."""
    event = jsontext.quick(line) if is_step(line) else jsontext.loads(line)
    if not (isinstance(event, dict) and isinstance(event.get("event"), str)):
        raise ValueError("an event without a kind")
    whole = event["event"] == "step" and shapes.is_record(event)
    if not whole and (name := shapes.misfit(event)) is not None:
        raise ValueError(f"an event whose {name} cannot be used")
    return event


def segments(folder: Path) -> list[Path]:
    """All segments in order; none when there is no folder."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    numbers = {int(match[1]): name for name in names if (match := _SEGMENT.fullmatch(name))}
    return [folder / numbers[number] for number in sorted(numbers)]


def read(folder: Path) -> Iterator[Event]:
    """All events, oldest first. The torn last line of a segment is left out: its writer died, or is at work.

    Any other line that is not an event is given as {"event": "unreadable", "segment": name, "line": number}.
    """
    for path in segments(folder):
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):
                    yield _decode(line, path, number)


def heads(folder: Path) -> Iterator[tuple[int, Event]]:
    """The number and the first event of every segment, oldest first: what a process says first is its start."""
    for path in segments(folder):
        with path.open("rb") as file:
            if (line := file.readline()).endswith(b"\n"):
                yield int(path.stem), _decode(line, path, 1)


def starts(folder: Path) -> Iterator[tuple[int, Event]]:
    """The number of the segment and the start event of every process on record, oldest first."""
    return ((number, event) for number, event in heads(folder) if event["event"] == "start")


def read_back(folder: Path, before: int | None = None) -> Iterator[Event]:
    """All events, newest first, reading from the end: cheap for the last few of a long history.

    `before`: only those of the segments before that number. The `line` of an unreadable one is counted from the end:
    -1 is the last.
    """
    for path in reversed(segments(folder)):
        if before is None or int(path.stem) < before:
            for number, line in enumerate(_whole_lines_back(path), start=1):
                yield _decode(line, path, -number)


def lines_back(folder: Path) -> Iterator[bytes]:
    """The line of every event, newest first: who passes over most of them decodes the others by `decode`."""
    return (line for path in reversed(segments(folder)) for line in _whole_lines_back(path))


def _whole_lines_back(path: Path) -> Iterator[bytes]:
    lines = back(path)
    next(lines, b"")  # what follows the last newline: nothing, or a torn line
    return lines


class Tail:
    """Follows the events from the first one on, or on from the `position` of an earlier tail."""

    def __init__(self, folder: Path, position: tuple[int, int] = (0, 0)) -> None:
        """`position`: a segment's number and how many bytes of it have been read."""
        self._folder = folder
        self._segment, self._offset = position
        self._number = 0

    @property
    def position(self) -> tuple[int, int]:
        """Everything before it has been given."""
        return self._segment, self._offset

    def poll(self) -> list[Event]:
        """The complete events that came since the last call; OSError when they cannot be read, which loses none.

        Half a MiB of them at most: who has much to catch up with calls again until there are none. The `line` of an
        unreadable one is counted from where this tail began in the segment.
        """
        events: list[Event] = []
        try:
            self._read(events)
        except OSError:
            if not events:
                raise  # else the next call meets it again: what has been read is given now or never
        return events

    def _read(self, events: list[Event]) -> None:
        """Adds what came since the last call."""
        listed = [path for path in segments(self._folder) if int(path.stem) >= self._segment]
        room = _MOST
        for path in listed:  # listed before it is read: only the last one can still grow
            if int(path.stem) != self._segment:
                self._segment, self._offset, self._number = int(path.stem), 0, 0
            while room > 0 and (lines := self._grown(path)):
                events += [_decode(line, path, self._number + i) for i, line in enumerate(lines, start=1)]
                self._number += len(lines)
                size = sum(map(len, lines)) + len(lines)
                self._offset += size
                room -= size
            if room <= 0:
                break

    def _grown(self, path: Path) -> list[bytes]:
        """The complete lines of about the next quarter of a MiB of a segment; none at its end."""
        with path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(_PIECE)
            while b"\n" not in data and (more := file.read(_PIECE)):
                data += more
        return data.split(b"\n")[:-1]


def _next_segment(folder: Path) -> _Segment:
    """An empty segment whose name is durable before anyone can read a line of it: readers note down how far they got,
    and must never meet another file under a number that they know."""
    listed = segments(folder)
    number = int(listed[-1].stem) + 1 if listed else 1
    path = folder / f"{number:06d}.jsonl"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        fsync_dir(folder)
    except OSError:
        os.close(fd)
        with suppress(OSError):
            path.unlink()
        raise
    return _Segment(path, fd)


def is_step(line: bytes) -> bool:
    """Whether `decode` would give a step event, told from how `encode` begins one."""
    return line.startswith(_STEP)


def decode(line: bytes) -> Event | None:
    """An event; None for a line that is none."""
    try:
        return parse(line)
    except ValueError:
        return None


def _decode(line: bytes, path: Path, number: int) -> Event:
    return decode(line) or {"event": "unreadable", "segment": path.name, "line": number}
