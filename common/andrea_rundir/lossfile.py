"""`.loss.json` as its one writer has it: one entry a recorded step, for ever; a JSON array that grows in place.

Written by the proxy only. The array ends in `]` and spaces. An append overwrites `]` and some of the spaces in one
`pwrite`, so the end of the file does not move and a reader beside it sees a whole array (or, where it meets the very
write, a beginning of it: ADR 9); the file grows by whitespace alone, 64 KiB at a time, and long before the room is
needed: a reader that reads to the end it first saw and then looks for more must find nothing but spaces there. No byte
of an entry ever changes. Imports the standard library, our ascending, entries, faults, growing and publish.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from andrea_rundir import jsontext
from andrea_rundir.ascending import Ascending
from andrea_rundir.entries import ATTEMPT, CLOSE, COMMA, GROWTH, HEAD, OPEN, Entry, encode, parse
from andrea_rundir.faults import about
from andrea_rundir.growing import Growing
from andrea_rundir.publish import publish, write_at


@dataclass(frozen=True)
class Mark:
    """How far a file was whole once: bytes up to the end of an entry, or of `[`; and their digest."""

    size: int
    digest: str


class LossFile:
    """The one writer. `entries` and `mark` say what the file holds."""

    def __init__(self, path: Path, vouched: Mark | None = None) -> None:
        """Opens the file, or makes it. What follows the last whole entry is cut off; `torn` says so.

        What is `vouched` for is not parsed but believed, if it is that still; `believed` says so. OSError.
        """
        self.path = path
        self.torn: str | None = None
        self.entries = 0
        self.last_step = 0
        self.size = len(OPEN) - 1
        self._hash = _hashed(OPEN[: self.size])
        self._places = Ascending("q", 1, 0)
        """Where the last entry of every step on record starts."""
        self._times: dict[int, list[str]] = {}
        self._dirty = True  # what a killed writer left may be in memory only
        fresh = not path.exists() or path.stat().st_size == 0
        if fresh:
            publish(path, OPEN[:1] + CLOSE + b" " * (GROWTH - 3))
        self._file = Growing(path)
        self._length = os.fstat(self._file.fd).st_size
        try:
            self.believed = vouched is not None and self._believe(vouched)
            self._scan()
        except OSError:
            self.let_go()
            raise

    @property
    def mark(self) -> Mark:
        """All that the file holds."""
        return Mark(self.size, self._hash.hexdigest())

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, all at once for every reader. OSError when there is no room: nothing was added then."""
        if not entries:
            return
        lines = [encode(entry) for entry in entries]
        head = COMMA if self.entries else b"\n"
        data = head + COMMA.join(lines) + CLOSE
        lacking = self.size + len(data) + GROWTH - self._length
        if lacking > 0:
            self._grow((lacking + GROWTH - 1) // GROWTH * GROWTH)
        self._write(data, self.size)
        offset = self.size + len(head)
        for entry, line in zip(entries, lines, strict=True):
            self._note(offset, entry["step"], entry["attempt"])
            offset += len(line) + len(COMMA)
        self._reach(self.size + len(data) - len(CLOSE), data[: -len(CLOSE)])
        self._dirty = True

    def sync(self) -> None:
        """Make everything appended durable. After a failed fsync the whole file is written anew, under its name."""
        if self._dirty:
            self._file.sync()
            self._dirty = False

    def close(self) -> None:
        """Sync and let go."""
        try:
            self.sync()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """The file is no longer open; nothing is written."""
        self._file.close()

    def stands(self) -> bool:
        """Whether what is appended can be found: False where somebody has removed or replaced the file."""
        return self._file.stands()

    def at(self, step: int) -> Entry | None:
        """The last entry of a step; None when there is none."""
        i = self._places.find(step)
        return None if i < 0 else self._entry(int(self._places.rows[0][i]))

    def knows(self, step: int, time: str) -> bool:
        """Whether an entry of that step and time is on record, superseded or not."""
        last = self.at(step)
        if last is None:
            return False
        return bool(last["time"] == time) or time in self._times.get(step, ())

    def since(self, size: int) -> Iterator[Entry]:
        """The entries that stand after the first `size` bytes, in order: looked at when the file was opened."""
        with self.path.open("rb") as file:
            file.seek(size)
            for raw in file:
                if raw.startswith(HEAD):
                    yield jsontext.quick(raw.rstrip(b",\n"))
                elif raw.startswith(b"]"):
                    return

    def _entry(self, offset: int) -> Entry:
        data = b""
        while b"\n" not in data:
            if not (piece := os.pread(self._file.fd, 4096, offset + len(data))):
                raise OSError(errno.EIO, "it ends inside of an entry: somebody else has cut it", str(self.path))
            data += piece
        entry: Entry = jsontext.quick(data[: data.index(b"\n")].rstrip(b","))
        return entry

    def _note(self, offset: int, step: int, attempt: int) -> None:
        """Count one entry whose line starts at `offset`; ValueError, nothing counted, for a repetition of nothing."""
        if attempt > 1:
            if (before := self.at(step)) is None:
                raise ValueError(f"attempt {attempt} of step {step} without one before")
            self._times.setdefault(step, []).append(before["time"])
        self.entries += 1
        self._places.rows[0][self._places.place(step)] = offset
        self.last_step = self._places.keys[-1]

    def _reach(self, size: int, more: bytes) -> None:
        """What is held ends after `size` bytes now, of which `more` are new."""
        self.size = size
        self._hash.update(more)

    def _grow(self, count: int) -> None:
        self._write(b" " * count, self._length)

    def _write(self, data: bytes, at: int) -> None:
        """All of `data`; what a full disk left of it is made spaces again (they are there already: no new room)."""
        done = 0
        try:
            with about(self.path):
                while done < len(data):
                    done += os.pwrite(self._file.fd, data[done:], at + done)
        except OSError:
            if at == self._length:
                os.ftruncate(self._file.fd, at)
            elif done:
                write_at(self._file.fd, (CLOSE + b" " * done)[:done], at)
            raise
        self._length = max(self._length, at + len(data))

    def _believe(self, mark: Mark) -> bool:
        """Find the entries that `mark` vouches for by how their lines begin; False when it is of another file."""
        with self.path.open("rb") as file:
            if (hashed := _digest(file, mark.size)) is None or hashed.hexdigest() != mark.digest:
                return False
            file.seek(offset := 0)
            for raw in file:
                if offset >= mark.size:
                    break
                if raw.startswith(HEAD):
                    step, attempt, _ = raw[len(HEAD) :].split(b",", 2)
                    self._note(offset, int(step), int(attempt[len(ATTEMPT) :]))
                offset += len(raw)
        self.size, self._hash = mark.size, hashed
        return True

    def _scan(self) -> None:
        """Find the place of every entry that is not believed; cut what is not one."""
        with self.path.open("rb") as file:
            file.seek(offset := self.size if self.entries else 0)
            raw = file.readline()
            if self.entries:
                bad = "" if raw in (b"\n", COMMA) else f"entry {self.entries + 1} is not whole"
            else:
                bad = "" if raw == OPEN else "it does not begin with ["
            offset, comma = offset + len(raw), raw != b"\n"
            while not bad and (raw := file.readline()).strip() != b"]":
                bad = self._look(raw, offset, comma=comma)
                offset, comma = offset + len(raw), raw.endswith(COMMA)
            if not bad and (file.readline() or (comma and self.entries)):
                bad = "it does not end with an entry and ]"
        if bad:
            self._cut(bad)

    def _look(self, raw: bytes, offset: int, *, comma: bool) -> str:
        """Note the entry in a line; what is wrong with it, or nothing. `comma`: whether an entry may follow."""
        line = raw.rstrip(b",\n")
        number = f"entry {self.entries + 1}"
        whole = comma and line.startswith(HEAD) and raw in (line + b"\n", line + COMMA)
        if not whole or b" " in line or b"\0" in line:  # a lost page reads as spaces or zeros
            return f"{number} is not whole"
        try:
            entry = parse(line)
            self._note(offset, entry["step"], entry["attempt"])
        except ValueError:
            return f"{number} cannot be read"
        self._reach(offset + len(line), (COMMA if self.entries > 1 else b"\n") + line)
        return ""

    def _cut(self, why: str) -> None:
        """Close the array after the last good entry; what else the file held is kept beside it where that can be."""
        start = self.size if self.entries else 0
        lost = os.pread(self._file.fd, self._length - start, start).strip(b",\n[] \0")
        self.torn = f"{why}; {self.entries} entries are whole, {len(lost)} bytes after them are not"
        if lost:
            with suppress(OSError):
                publish(self.path.with_name(self.path.name + ".torn"), lost)
        data = (b"" if self.entries else OPEN[:1]) + CLOSE
        self._write(data.ljust(self._length - start), start)
        with about(self.path):
            self._file.sync()


def digest(path: Path, size: int) -> str | None:
    """The digest of a mark at the first `size` bytes of a file; None when it has not so many, or is not there."""
    try:
        with path.open("rb") as file:
            hashed = _digest(file, size)
    except FileNotFoundError:
        return None
    return None if hashed is None else hashed.hexdigest()


def _digest(file: BinaryIO, size: int) -> blake2b | None:
    hashed, left = _hashed(), size
    while left and (piece := file.read(min(left, 1 << 20))):
        hashed.update(piece)
        left -= len(piece)
    return None if left else hashed


def _hashed(data: bytes = b"") -> blake2b:
    return blake2b(data, digest_size=16)
