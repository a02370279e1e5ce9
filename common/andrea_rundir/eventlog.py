"""The one writer of a run's events, the trainer: appends lines to the newest segment in `events/`.

A line is written at once and made durable by `sync`. What cannot be written waits in memory and goes first when space
is back: no event is lost while the process lives, and none overtakes another. Imports the standard library, our events
and publish.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from andrea_rundir.events import segments
from andrea_rundir.publish import fsync_dir, stands


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
        self._number = 0  # of the newest segment of our own
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

    def mend(self) -> str | None:
        """Where the file was removed or moved away under the writer, goes over to a new one, with all that was not
        synced yet; which file it was, then."""
        with self._lock:
            if (segment := self._segment) is None or stands(segment.fd, segment.path):
                return None
        with self._syncing, self._lock:  # the disk is not at work on it any more
            if self._segment is segment:
                self._give_up(segment, FileNotFoundError(errno.ENOENT, "was removed"))
                self._write()
        return str(segment.path)

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
                    self._segment = _next_segment(self._folder, self._number)
                    self._number = int(self._segment.path.stem)
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


def _next_segment(folder: Path, last: int) -> _Segment:
    """An empty segment whose name is durable before anyone can read a line of it: readers note down how far they got,
    and must never meet another file under a number that they know, that of the `last` one included."""
    if last and not folder.exists():
        folder.mkdir()
        fsync_dir(folder.parent)
    number = max([last, *(int(path.stem) for path in segments(folder)[-1:])]) + 1
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
