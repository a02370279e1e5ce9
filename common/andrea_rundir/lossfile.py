"""`.loss.json`: one entry a recorded step, for ever; a JSON array that grows in place.

Written by the proxy only. The array ends in `]` and spaces. An append overwrites `]` and some of the spaces in one
`pwrite`, so the end of the file does not move and a reader beside it sees a whole array (or, where it meets the very
write, a beginning of it: ADR 9); the file grows by whitespace alone, 64 KiB at a time, and long before the room is
needed: a reader that reads to the end it first saw and then looks for more must find nothing but spaces there. No byte
of an entry ever changes. Imports the standard library, our faults, lines and publish.
"""

from __future__ import annotations

import errno
import json
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from andrea_rundir import jsontext, shapes
from andrea_rundir.faults import about
from andrea_rundir.lines import back
from andrea_rundir.publish import publish

Entry = dict[str, Any]
"""step, attempt, loss, ema, arms, lr, grad_norm, tokens, seconds, policy, flags, time."""

GROWTH = 64 << 10
_OPEN, _CLOSE, _COMMA = b"[\n", b"\n]", b",\n"
_HEAD = b'{"step":'


def encode(entry: Entry) -> bytes:
    """One line without its end; step and attempt come first. Floats by repr; ValueError for NaN and infinity."""
    ordered = {"step": entry["step"], "attempt": entry["attempt"], **entry}
    return json.dumps(ordered, separators=(",", ":"), allow_nan=False).encode()


def parse(line: bytes) -> Entry:
    """The entry in a line, whole, each field of its type; ValueError for anything else."""
    entry = jsontext.quick(line)
    if not (type(entry) is dict and shapes.is_entry(entry)):
        raise ValueError("no entry")
    return entry


def read(path: Path) -> Iterator[Entry]:
    """All whole entries in the order of the file, the superseded ones too; a torn tail is left out."""
    return (entry for _, entry in _lines(path))


def excerpt(path: Path, wanted: Callable[[Entry], bool]) -> bytes:
    """A whole file of the entries in `path` that are `wanted`, each byte for byte as it stands there."""
    lines = [line for line, entry in _lines(path) if wanted(entry)]
    return _OPEN[:1] + b"\n" * bool(lines) + _COMMA.join(lines) + _CLOSE + b" " * GROWTH


def _lines(path: Path) -> Iterator[tuple[bytes, Entry]]:
    """The line of every whole entry, and what it says."""
    try:
        with path.open("rb") as file:
            for raw in file:
                if raw.startswith(_HEAD):
                    line = raw.rstrip(b",\n")
                    try:
                        yield line, parse(line)
                    except ValueError:
                        return
    except FileNotFoundError:
        return


def read_back(path: Path) -> Iterator[Entry]:
    """All whole entries, the last of the file first: cheap for the newest of a long history."""
    try:
        for line in back(path):
            if line.startswith(_HEAD):
                try:
                    yield parse(line.rstrip(b","))
                except ValueError:  # torn
                    continue
    except FileNotFoundError:
        return


class LossFile:
    """The one writer. `entries`, `size` (bytes up to the last entry's end) and `digest` say what the file holds."""

    def __init__(self, path: Path, *, trusted: int = 0) -> None:
        """Opens the file, or makes it. What follows the last whole entry is cut off; `torn` says so.

        The first `trusted` bytes were whole and durable once: their lines are counted, not parsed, and whoever trusts
        them compares `mark`. OSError.
        """
        self.path = path
        self.torn: str | None = None
        self.entries = 0
        self.last_step = 0
        self.digest = ""
        self.mark: tuple[int, str] | None = None
        """Entries and digest of the first `trusted` bytes; None when no entry ends there."""
        self.size = len(_OPEN) - 1
        self._steps, self._offsets = array("q"), array("q")
        """Every step on record, ascending, and where its last entry starts: what one number says costs no memory."""
        self._times: dict[int, list[str]] = {}
        self._dirty = True  # what a killed writer left may be in memory only
        fresh = not path.exists() or path.stat().st_size == 0
        if fresh:
            publish(path, _OPEN[:1] + _CLOSE + b" " * (GROWTH - 3))
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._length = os.fstat(self._fd).st_size
        self._scan(trusted)

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, all at once for every reader. OSError when there is no room: nothing was added then."""
        if not entries:
            return
        lines = [encode(entry) for entry in entries]
        head = _COMMA if self.entries else b"\n"
        data = head + _COMMA.join(lines) + _CLOSE
        lacking = self.size + len(data) + GROWTH - self._length
        if lacking > 0:
            self._grow((lacking + GROWTH - 1) // GROWTH * GROWTH)
        self._write(data, self.size)
        offset = self.size + len(head)
        for entry, line in zip(entries, lines, strict=True):
            self._note(line, offset, entry["step"], entry["attempt"])
            offset += len(line) + len(_COMMA)
        self._dirty = True

    def sync(self) -> None:
        """Make everything appended durable. After a failed fsync the whole file is written anew, under its name."""
        if not self._dirty:
            return
        try:
            os.fsync(self._fd)
        except OSError:
            publish(self.path, os.pread(self._fd, self._length, 0))
            os.close(self._fd)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self._dirty = False

    def close(self) -> None:
        """Sync and let go."""
        self.sync()
        os.close(self._fd)

    def at(self, step: int) -> Entry | None:
        """The last entry of a step; None when there is none."""
        offset = self._offset(step)
        return None if offset < 0 else self._entry(offset)

    def knows(self, step: int, time: str) -> bool:
        """Whether an entry of that step and time is on record, superseded or not."""
        last = self.at(step)
        if last is None:
            return False
        return bool(last["time"] == time) or time in self._times.get(step, ())

    def since(self, size: int) -> Iterator[Entry]:
        """The entries that stand after the first `size` bytes, in order."""
        with self.path.open("rb") as file:
            file.seek(size)
            file.readline()  # the comma, or `[`
            while file.tell() < self.size:
                yield parse(file.readline().rstrip(b",\n"))

    def _entry(self, offset: int) -> Entry:
        data = b""
        while b"\n" not in data:
            if not (piece := os.pread(self._fd, 4096, offset + len(data))):
                raise OSError(errno.EIO, "it ends inside of an entry: somebody else has cut it", str(self.path))
            data += piece
        return parse(data[: data.index(b"\n")].rstrip(b","))

    def _offset(self, step: int) -> int:
        """Where the last entry of a step starts; -1 when there is none."""
        i = bisect_left(self._steps, step)
        return self._offsets[i] if i < len(self._steps) and self._steps[i] == step else -1

    def _note(self, line: bytes, offset: int, step: int, attempt: int) -> None:
        """Count one entry whose line starts at `offset`."""
        if not 0 <= step <= shapes.MAX_STEP:
            raise ValueError(f"{step} is no step")
        if attempt > 1:
            if (before := self.at(step)) is None:
                raise ValueError(f"attempt {attempt} of step {step} without one before")
            self._times.setdefault(step, []).append(before["time"])
        i = bisect_left(self._steps, step) if step <= self.last_step else len(self._steps)
        if i == len(self._steps) or self._steps[i] != step:
            self._steps.insert(i, step)
            self._offsets.insert(i, offset)
        self._offsets[i] = offset
        self.entries += 1
        self.last_step = max(self.last_step, step)
        self.digest = _chained(self.digest, line)
        self.size = offset + len(line)

    def _grow(self, count: int) -> None:
        self._write(b" " * count, self._length)

    def _write(self, data: bytes, at: int) -> None:
        """All of `data`; what a full disk left of it is made spaces again (they are there already: no new room)."""
        done = 0
        try:
            with about(self.path):
                while done < len(data):
                    done += os.pwrite(self._fd, data[done:], at + done)
        except OSError:
            if at == self._length:
                os.ftruncate(self._fd, at)
            elif done:
                os.pwrite(self._fd, (_CLOSE + b" " * done)[:done], at)
            raise
        self._length = max(self._length, at + len(data))

    def _scan(self, trusted: int) -> None:
        """Find every entry's place; cut what is not one."""
        with self.path.open("rb") as file:
            bad = "" if (raw := file.readline()) == _OPEN else "it does not begin with ["
            offset, comma = len(raw), True
            self.mark = (0, self.digest) if trusted == self.size else None
            while not bad and (raw := file.readline()).strip() != b"]":
                bad = self._look(raw, offset, comma=comma, anew=offset + len(raw) > trusted + len(_COMMA))
                if self.size == trusted:
                    self.mark = (self.entries, self.digest)
                offset, comma = offset + len(raw), raw.endswith(_COMMA)
            if not bad and (file.readline() or (comma and self.entries)):
                bad = "it does not end with an entry and ]"
        if bad:
            self._cut(bad)

    def _look(self, raw: bytes, offset: int, *, comma: bool, anew: bool) -> str:
        """Note the entry in a line; what is wrong with it, or nothing. `comma`: whether an entry may follow."""
        line = raw.rstrip(b",\n")
        number = f"entry {self.entries + 1}"
        if not (comma and line.startswith(_HEAD) and line.endswith(b"}")):
            return f"{number} is not whole"
        try:
            if anew:  # else the digest of all of them tells whoever vouched for them
                if raw not in (line + b"\n", line + _COMMA) or b" " in line or b"\0" in line:
                    return f"{number} is not whole"  # a lost page reads as spaces or zeros
                parse(line)
            step, attempt = line[len(_HEAD) :].split(b",", 2)[:2]
            self._note(line, offset, int(step), int(attempt.removeprefix(b'"attempt":')))
        except (ValueError, KeyError, TypeError):
            return f"{number} cannot be read"
        return ""

    def _cut(self, why: str) -> None:
        """Close the array after the last good entry; what else the file held is kept beside it where that can be."""
        start = self.size if self.entries else 0
        lost = os.pread(self._fd, self._length - start, start).strip(b",\n[] \0")
        self.torn = f"{why}; {self.entries} entries are whole, {len(lost)} bytes after them are not"
        if lost:
            with suppress(OSError):
                publish(self.path.with_name(self.path.name + ".torn"), lost)
        data = (b"" if self.entries else _OPEN[:1]) + _CLOSE
        self._write(data.ljust(self._length - start), start)
        with about(self.path):
            os.fsync(self._fd)


def latest(entries: Iterable[Entry]) -> dict[int, Entry]:
    """The entry in force of each step, by step: the last one recorded."""
    found: dict[int, Entry] = {}
    for entry in entries:
        found[entry["step"]] = entry
    return dict(sorted(found.items()))


def digest(entries: Iterable[Entry]) -> str:
    """What `LossFile.digest` is for a file of these entries."""
    chained = ""
    for entry in entries:
        chained = _chained(chained, encode(entry))
    return chained


def _chained(before: str, line: bytes) -> str:
    return blake2b(before.encode() + line, digest_size=16).hexdigest()
