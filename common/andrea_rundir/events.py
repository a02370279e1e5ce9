"""What happened to a run, as it is read: one JSON object a line, in numbered segments, `events/NNNNNN.jsonl`.

Written by the trainer only (`eventlog`). Readers may meet an event twice, after a failed fsync, and a last line that is
not finished. Imports the standard library, our jsontext, lines and shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from andrea_rundir import jsontext, shapes
from andrea_rundir.lines import back

Event = dict[str, Any]
"""`event` (its kind), `time` (UTC, milliseconds), and the fields of that kind."""

_SEGMENT = re.compile(r"(\d{6,})\.jsonl", re.ASCII)
_STEP = b'{"event":"step",'
_PIECE = 256 << 10
_MOST = 512 << 10
"""Bytes of events that a tail gives at once: with a history of millions, memory is bounded by this."""


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


def of_kinds(folder: Path, *kinds: str) -> Iterator[Event]:
    """All events of some kinds, oldest first; no others are decoded, and what cannot be read is left out."""
    marks = tuple(map(_mark, kinds))
    for path in segments(folder):
        with path.open("rb") as file:
            for line in file:
                if line.startswith(marks) and line.endswith(b"\n") and (event := decode(line)) is not None:
                    yield event


def of_kind_back(folder: Path, kind: str) -> Iterator[Event]:
    """The same of one kind, newest first."""
    mark = _mark(kind)
    return (event for line in lines_back(folder) if line.startswith(mark) and (event := decode(line)) is not None)


def _mark(kind: str) -> bytes:
    """How `encode` begins an event."""
    return b'{"event":"%s",' % kind.encode()


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
