"""Where log records go: to the journal with fields, else to stderr; never in the way of the work.

`setup` gives the one logger. A record is made ready where it is logged and handed to a bounded queue; one
thread writes. A journal that hangs fills the queue: what does not fit is counted, and said once it moves on.
With `extra={"event": "checkpoint", "step": 100, "path": ...}` the journal gets ANDREA_EVENT, ANDREA_STEP,
ANDREA_PATH and the event's MESSAGE_ID. Writes no file. Imports the standard library and our signals.

Protocol: systemd.io/JOURNAL_NATIVE_PROTOCOL. On stderr, `<N>` before a line is its priority (sd-daemon(3)).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import queue
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from andrea_service.signals import leave_aborts

JOURNAL_SOCKET = Path("/run/systemd/journal/socket")

# `journalctl MESSAGE_ID=...` finds all messages of a kind; the ids are a contract and never change.
MESSAGE_IDS = {
    "ready": "a397e0ebc2ee40ee98c5743658ec05ee",
    "resume": "625cffc10fec4e6781361bc4484404de",
    "passed-over": "4b3e74811141491e99859b917ee102a8",
    "fallback": "e40b7fe598f94966b8e8f3d8072525a6",
    "checkpoint": "228a41f198f7452387b7ed5939a9ace6",
    "audit": "4a00e0dc93864c47af7dbf7ce4541ced",
    "probe": "0363824f63a249f5b832b1a4ede2fd63",
    "progress": "42d3a5a667654716b26baee27705f7fa",
    "card": "4327de88e8c7467c92b8899db63c1b3d",
    "warning": "1fb984b4fd194b35ab111ac398076bf5",
    "pivot": "13b59ab3378b4932870aa051ba040a8c",
    "page": "376ced57f6ef4c3485840454ad6a437b",
    "action": "54c2879fd2e04ca6a95e1a52115029f0",
    "stop": "42ad8af4fc2d4a54963b329d51c8da07",
    "halt": "10e27b765cbf446abababa06013fbf8d",
    "dropped": "c2b91e483f8b4b4ab9e3bdb4725bba6f",
}

_QUEUE = 4096  # records
_FAREWELL = 1.0  # seconds that closing waits for the queue to empty
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}

# Makes a record ready and returns the write, which another thread carries out: it may block or raise OSError.
Sink = Callable[[logging.LogRecord], Callable[[], None]]


def setup(run_name: str, *, socket_path: Path = JOURNAL_SOCKET) -> logging.Logger:
    """The logger `andrea`: to the journal if stderr is the journal's, else to stderr; replaces an older."""
    log = logging.getLogger("andrea")
    for old in list(log.handlers):
        log.removeHandler(old)
        old.close()
    log.addHandler(Relay(Journal(run_name, socket_path).ready if _stderr_is_journal() else Stderr().ready))
    log.setLevel(logging.INFO)
    log.propagate = False
    return log


def _stderr_is_journal() -> bool:
    """Whether JOURNAL_STREAM (device:inode, set by the service manager) still names our stderr."""
    stat = os.fstat(2)
    return os.environ.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}"


class Relay(logging.Handler):
    """Makes ready in the caller, writes in one thread; logging neither blocks nor raises."""

    def __init__(self, sink: Sink, *, size: int = _QUEUE) -> None:
        super().__init__()
        self._sink = sink
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(size)
        self._dropped = 0
        self._count = threading.Lock()  # not the handler's own, which logging.shutdown holds around `close`
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record, or count it as dropped."""
        try:
            self._queue.put_nowait(self._sink(record))
        except queue.Full:
            with self._count:
                self._dropped += 1
        except Exception:  # a wrong format string in a log call must not end a run of weeks
            self.handleError(record)

    def close(self) -> None:
        """Write what waits, for a second at most."""
        until = time.monotonic() + _FAREWELL
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=_FAREWELL)
        self._thread.join(max(0.0, until - time.monotonic()))
        super().close()

    def _write(self) -> None:
        leave_aborts()
        while (write := self._queue.get()) is not None:
            with contextlib.suppress(OSError):
                write()
                self._confess()
        self._confess()

    def _confess(self) -> None:
        """Say how many were dropped since the last time."""
        with self._count:
            count, self._dropped = self._dropped, 0
        if count:
            text = f"{count} log records were dropped: the journal did not keep up"
            fields = {"msg": text, "levelno": logging.WARNING, "levelname": "WARNING", "event": "dropped"}
            self._sink(logging.makeLogRecord(fields))()


class Stderr:
    """Lines for a person; for a service manager, which stamps each line itself, each begins with its priority."""

    def __init__(self) -> None:
        self._managed = "INVOCATION_ID" in os.environ and not os.isatty(2)
        words = "%(message)s" if self._managed else "%(asctime)s %(levelname)s %(message)s"
        self._format = logging.Formatter(words, datefmt="%H:%M:%S")

    def ready(self, record: logging.LogRecord) -> Callable[[], None]:
        """The write of the record's lines."""
        start = f"<{priority(record.levelno)}>" if self._managed else ""
        lines = self._format.format(record).splitlines() or [""]
        return partial(_write_all, 2, "".join(f"{start}{line}\n" for line in lines).encode("utf-8", "replace"))


class Journal:
    """The journal's own protocol: one datagram a record, a sealed memfd for one that is too long."""

    def __init__(self, run_name: str, path: Path) -> None:
        self._run = run_name
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._stderr = Stderr()
        self._format = logging.Formatter()
        self._program = Path(sys.argv[0]).name

    def ready(self, record: logging.LogRecord) -> Callable[[], None]:
        """The write of the record with its fields; ANDREA_ stands before the name of an extra."""
        fields = {
            "MESSAGE": self._format.format(record),
            "PRIORITY": str(priority(record.levelno)),
            "SYSLOG_IDENTIFIER": self._program,
            "ANDREA_RUN": self._run,
        }
        extras = {name: str(value) for name, value in vars(record).items() if name not in _STANDARD}
        if message_id := MESSAGE_IDS.get(extras.get("event", "")):
            fields["MESSAGE_ID"] = message_id
        for name, value in extras.items():
            fields["ANDREA_" + re.sub("[^A-Z0-9_]", "_", name.upper())[:57]] = value  # 64 in all
        return partial(self._write, datagram(fields), self._stderr.ready(record))

    def _write(self, data: bytes, instead: Callable[[], None]) -> None:
        try:
            self._socket.sendto(data, self._path)
        except OSError as error:
            if error.errno in (errno.EMSGSIZE, errno.ENOBUFS):
                self._write_long(data)
            else:  # no journal there
                instead()

    def _write_long(self, data: bytes) -> None:
        fd = os.memfd_create("andrea-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            _write_all(fd, data)
            # The journal maps it, and takes it only if it cannot change any more.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))
            self._socket.sendmsg([b""], [rights], 0, self._path)
        finally:
            os.close(fd)


def priority(level: int) -> int:
    """The syslog priority of a logging level; never 0 (emergency), which goes to every terminal."""
    return next((number for limit, number in _PRIORITIES if level >= limit), 7)


def datagram(fields: Mapping[str, str]) -> bytes:
    """`NAME=value` lines; a value with a line end as name, 64-bit little-endian length, bytes."""
    parts = []
    for name, value in fields.items():
        data = value.encode("utf-8", "replace")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
