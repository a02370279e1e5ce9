"""What a service tells the service manager (sd_notify(3)): ready, status, stopping, give me time, I live.

A message that cannot be sent is dropped: telling must never stop the work. Nothing here pings by the clock
alone: the watchdog and a longer stop are earned by progress. Writes nothing. Imports `sdnotify` and our signals.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

import sdnotify

from andrea_service.signals import leave_aborts

_LONGEST = 1000  # bytes of a status: a line, not a page
_PATIENCE = 1.0  # seconds a send may block when the manager does not read


class Notifier:
    """The line to the service manager; silent without one. Make one a process: it takes the address away."""

    def __init__(self) -> None:
        self._line: sdnotify.SystemdNotifier | None = None
        if os.environ.get("NOTIFY_SOCKET"):
            with contextlib.suppress(OSError):
                self._line = sdnotify.SystemdNotifier(debug=True)
                self._line.socket.settimeout(_PATIENCE)
            del os.environ["NOTIFY_SOCKET"]  # the manager would log each message of a child as a fault

    @property
    def watchdog_seconds(self) -> float | None:
        """The manager's watchdog limit for this process, in seconds; None without one."""
        if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return None
        limit = os.environ.get("WATCHDOG_USEC", "")
        return int(limit) / 1e6 if limit.isascii() and limit.isdigit() and int(limit) else None

    def ready(self, status: str) -> None:
        """Started. In a datagram of its own, so that it counts before whatever follows."""
        self._send("READY=1")
        self.status(status)

    def status(self, text: str) -> None:
        """The one line that `systemctl status` shows."""
        self._send(f"STATUS={_one_line(text)}")

    def stopping(self, status: str) -> None:
        """Stopping: also what tells the manager so when the signal did not come from it."""
        self._send(f"STOPPING=1\nSTATUS={_one_line(status)}")

    def extend(self, seconds: float) -> None:
        """Ask that the next message be waited for `seconds` from now (start, run or stop limit)."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def watchdog(self) -> None:
        """One sign of life."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self._line is None:
            return
        # sdnotify encodes latin-1: handing it our UTF-8 as latin-1 text sends the UTF-8 unchanged.
        with contextlib.suppress(OSError):
            self._line.notify(message.encode("utf-8", "replace").decode("latin-1"))


def _one_line(text: str) -> str:
    """`text` as the manager takes it: no line ends, no NUL, at most `_LONGEST` bytes of whole characters."""
    line = " ".join(text.replace("\0", " ").split())
    return line.encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore")


class Heartbeat:
    """Watchdog pings earned by progress: the loop calls `beat`, which pings at most every `interval` s.

    `beats` counts them.
    """

    def __init__(
        self,
        notifier: Notifier,
        interval: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limit = notifier.watchdog_seconds
        self._interval = interval if interval is not None else (limit / 4 if limit else None)
        self._notifier = notifier
        self._clock = clock
        self._next = 0.0
        self.beats = 0

    def beat(self) -> None:
        """The loop has moved on."""
        self.beats += 1
        if self._interval is not None and (now := self._clock()) >= self._next:
            self._notifier.watchdog()
            self._next = now + self._interval


class Extender:
    """While entered, asks for more time every second in which `counter()` grew (bytes made durable, heartbeats).

    So a slow disk gets its time and a hung one ends in a kill. The first request goes out at once.
    """

    def __init__(
        self, notifier: Notifier, counter: Callable[[], int], *, seconds: float = 10.0, interval: float = 1.0
    ) -> None:
        self._notifier = notifier
        self._counter = counter
        self._seconds = seconds
        self._interval = interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(counter(),), name="extender", daemon=True)

    def __enter__(self) -> Extender:
        self._notifier.extend(self._seconds)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self, seen: int) -> None:
        leave_aborts()
        while not self._done.wait(self._interval):
            if (now := self._counter()) > seen:
                self._notifier.extend(self._seconds)
                seen = now
