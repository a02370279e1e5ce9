"""What a service is told by signals: SIGTERM and SIGINT wish it to stop, SIGUSR1 wishes for a checkpoint.

`block` is called before any heavy import, for threads and children inherit the mask: a SIGUSR1 sent to every
process of the unit hurts none of them. The wishes are events that the loop polls; no work is done in a
handler. Writes nothing. Standard library only.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

_STOPS = {signal.SIGTERM: "sigterm", signal.SIGINT: "sigint"}


def block() -> None:
    """Block SIGUSR1 in this thread, and so in all threads and children it starts; SIGTERM stays as it is.

    SIGABRT too, until `take_aborts`: threads that libraries start as they are imported leave it to the main one.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGABRT})


def take_aborts() -> None:
    """In the main thread, once all is imported: SIGABRT, by which a watchdog ends a process that hangs, comes here.

    The thread that is hit writes its stack (faulthandler), and of a process that hangs it is the main one's that tells
    why: it waits for whoever hangs.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGABRT})


def leave_aborts() -> None:
    """The first act of a thread that is started later and lives on beside the main one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGABRT})


def ignore_stops() -> None:
    """The last act of a process, whose exit code is decided: while the interpreter is taken down, which gives every
    handler back to the system, a stop that comes late would still kill it, and tell whoever waits another end."""
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)


class Signals:
    """The wishes of the outside. `stop_reason` is "sigterm" or "sigint", whichever came first."""

    def __init__(self) -> None:
        self.stop_wanted = threading.Event()
        self.checkpoint_wanted = threading.Event()
        self.stop_reason: str | None = None
        self._listener = threading.Thread(target=self._listen, name="signals", daemon=True)

    def install(self) -> None:
        """Start the listener, set the handlers, let SIGTERM and SIGINT in. From the main thread, once."""
        # Blocked while the listener starts, so that they go to the main thread and break its sleeps off.
        signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOPS, signal.SIGUSR1})
        self._listener.start()
        for number in _STOPS:
            signal.signal(number, self._stop)
        os.register_at_fork(before=_hold_stops, after_in_parent=_resume_stops, after_in_child=_forget_stops)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, set(_STOPS))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stop_reason is None:
            self.stop_reason = _STOPS[signal.Signals(number)]
            # Not stop_wanted.set(): the handler may have interrupted the main thread inside
            # stop_wanted.wait(), which holds the event's lock, and would wait for itself for ever.
            signal.pthread_kill(self._listener.ident or 0, signal.SIGUSR1)

    def _listen(self) -> None:
        while True:
            signal.sigwait({signal.SIGUSR1})
            if self.stop_reason is None:
                self.checkpoint_wanted.set()
            else:
                self.stop_wanted.set()


# A forked child has no listener: a stop must end it, as whoever started it expects (Process.terminate). The
# stops are held back over the fork, or one that comes before the child has let go of the handler would be lost.
_held = threading.local()


def _hold_stops() -> None:
    _held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(_STOPS))


def _resume_stops() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.mask)


def _forget_stops() -> None:
    for number in _STOPS:
        signal.signal(number, signal.SIG_DFL)
    _resume_stops()
