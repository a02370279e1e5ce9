"""`plan.jsonl`: what to train on next, one line a round; appended and fsynced by the proxy, read by everyone.

A line is a `RoundPlan`. The first line of every policy carries that policy's whole text; a line with `fallback` says
what the trainer did for want of a usable one. A round may stand there more than once: the last line counts. Imports
the standard library and this package.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from andrea_rundir import jsontext
from andrea_rundir.faults import about
from andrea_rundir.growing import Growing
from andrea_rundir.lines import back
from andrea_rundir.plan import RoundPlan
from andrea_rundir.publish import aside, fsync_dir, publish


@dataclass(frozen=True)
class Line:
    """One round, and what else its line says."""

    plan: RoundPlan
    fallback: bool = False
    """The trainer recorded this round itself; the line only repeats it."""
    scaled: bool = False
    """The caps summed under 1 once arms had dropped out, and were scaled up together."""
    policy_text: str | None = None
    """The whole of the policy, on the first line of each."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; marks that are not set are left out."""
        marks = {name: value for name in ("policy_text", "fallback", "scaled") if (value := getattr(self, name))}
        return marks | self.plan.to_json()

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Line:
        """Read what `to_json` wrote, among other keys or not; ValueError saying what does not fit."""
        text = found.get("policy_text")
        if not (text is None or isinstance(text, str)):
            raise ValueError("a line whose policy_text cannot be used")
        return cls(RoundPlan.from_json(found), found.get("fallback") is True, found.get("scaled") is True, text)


def encode(line: Line) -> bytes:
    """A line with its end."""
    return json.dumps(line.to_json(), separators=(",", ":")).encode() + b"\n"


def decode(data: bytes) -> Line:
    """What `encode` wrote; ValueError saying what does not fit."""
    found = jsontext.quick(data)  # a plan's numbers are looked at one by one
    if not isinstance(found, dict):
        raise ValueError("a line that is no object")
    return Line.from_json(found)


def read(path: Path) -> Iterator[Line]:
    """All lines, oldest first; ValueError at one that cannot be used. A torn last line is left out."""
    with path.open("rb") as file:
        for data in file:
            if data.endswith(b"\n"):
                yield decode(data)


def read_back(path: Path) -> Iterator[Line]:
    """All lines, newest first; none without a file. ValueError at one that cannot be used."""
    try:
        pieces = back(path)
        next(pieces)  # what follows the last newline: nothing, or a torn line
        for data in pieces:
            yield decode(data)
    except FileNotFoundError:
        return


def line_of(path: Path, number: int) -> Line | None:
    """The line in force of a round; None when it has none. Cheap for the newest rounds."""
    for line in read_back(path):
        if line.plan.round == number:
            return line
        if line.plan.round < number - _DISORDER:
            return None
    return None


_DISORDER = 4
"""Rounds by which a line may stand after a later one: a fallback is noted behind what had been planned ahead."""


def first_lines(path: Path) -> list[Line]:
    """The lines that carry a policy's text, in order; found without reading the rest as JSON."""
    return list(_marked(path, b'"policy_text":'))


def fallbacks(path: Path) -> Iterator[Line]:
    """The rounds that the trainer recorded itself, in order."""
    return _marked(path, b'"fallback":true')


def _marked(path: Path, mark: bytes) -> Iterator[Line]:
    """Usable lines with `mark` outside of any string: inside of one its quotes would be escaped."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                at = data.find(mark)
                while at >= 0:
                    start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
                    if end < 0:
                        return
                    if (line := _usable(data[start:end])) is not None:
                        yield line
                    at = data.find(mark, end)
    except FileNotFoundError:
        return


class PlanReader:
    """Follows the file for the trainer: lines of rounds from `since` on, then whatever comes."""

    def __init__(self, path: Path, since: int) -> None:
        """Reads back as far as it must; a line that cannot be used counts as one that is not there."""
        self._path = path
        self._start: list[Line] = []
        self._offset, self._file = 0, -1
        try:
            pieces = back(path)
            found = path.stat()
            self._offset, self._file = found.st_size - len(next(pieces)), found.st_ino
        except FileNotFoundError:
            return
        for data in pieces:
            line = _usable(data)
            if line is not None and line.plan.round < since - _DISORDER:
                break
            if line is not None:
                self._start.insert(0, line)

    def poll(self) -> list[Line]:
        """The usable lines that were completed since the last call, in order; what cannot be read now is read later."""
        lines, self._start = self._start, []
        try:
            with self._path.open("rb") as file:
                here = os.fstat(file.fileno()).st_ino
                file.seek(max(0, self._offset - 1))
                if here != self._file or (self._offset and file.read(1) != b"\n"):  # set aside or lost, and begun anew
                    self._offset, self._file = file.seek(0), here
                *complete, _ = file.read().split(b"\n")
        except OSError:  # not there yet, or the machine has no descriptor left: no reason to end a run
            return lines
        self._offset += sum(map(len, complete)) + len(complete)
        return lines + [line for data in complete if (line := _usable(data)) is not None]


def _usable(data: bytes) -> Line | None:
    try:
        return decode(data)
    except ValueError:
        return None


class PlanFile:
    """The one writer."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it; a torn last line is cut off, and `torn` says so. OSError."""
        self.path = path
        self.torn: str | None = None
        fresh = not path.exists()
        self._file = Growing(path, os.O_CREAT | os.O_APPEND)
        try:
            if fresh:
                fsync_dir(path.parent)
            self._size = self._cut()
        except OSError:
            self.close()
            raise

    def _cut(self) -> int:
        """Cut off a torn last line, make the rest durable; how long it is."""
        rest = next(back(self.path))
        size = os.fstat(self._file.fd).st_size - len(rest)
        with about(self.path):
            if rest:
                os.ftruncate(self._file.fd, size)
                self.torn = f"its last line was torn: {len(rest)} bytes were cut off"
            self._file.sync()  # what a killed writer left may be in memory only
        return size

    def append(self, lines: Sequence[Line]) -> None:
        """Add lines, durably. OSError when they cannot be written: none was added then.

        A line with a policy's text is durable before there is a line behind it: none of those can do without it, and
        what is not synced may survive a power cut in any part.
        """
        size = self._size
        try:
            with about(self.path):
                for i, line in enumerate(lines, start=1):
                    self._write(encode(line))
                    if line.policy_text is not None or i == len(lines):
                        self._file.sync()
        except OSError:
            self._size = size
            os.ftruncate(self._file.fd, size)
            raise

    def stands(self) -> bool:
        """Whether what is appended can be found: False where somebody has removed or replaced the file."""
        return self._file.stands()

    def _write(self, data: bytes) -> None:
        while data:
            count = os.write(self._file.fd, data)
            self._size += count
            data = data[count:]

    def close(self) -> None:
        """Let go."""
        self._file.close()


def write(path: Path, lines: Sequence[Line]) -> None:
    """Put a whole plan in its place at once, durably. OSError."""
    publish(path, b"".join(map(encode, lines)))


def salvage(path: Path) -> Path:
    """Set a damaged file aside and put one in its place that holds every line that can be used; the old one's path."""
    data = path.read_bytes()
    kept = aside(path)
    os.link(path, kept)
    publish(path, b"".join(piece for piece, _ in _whole(data)))
    return kept


def excerpt(path: Path, step: int) -> bytes:
    """The lines of all rounds that begin at or before a step, byte for byte; those that cannot be used are left out."""
    data = path.read_bytes() if path.exists() else b""
    return b"".join(piece for piece, line in _whole(data) if line.plan.first <= step)


def _whole(data: bytes) -> Iterator[tuple[bytes, Line]]:
    """The usable lines of a file, with what they say."""
    for piece in data.split(b"\n")[:-1]:
        if (line := _usable(piece)) is not None:
            yield piece + b"\n", line
