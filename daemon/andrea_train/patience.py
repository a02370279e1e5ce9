"""Patience: how long the trainer may wait for the proxy in all, so that a dead or slow proxy never stops a run.

A budget of seconds, full at process start, refilled at 1 % of wall time. Waiting spends it. Writes no file.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REFILL = 0.01
"""Seconds of patience gained in a second of wall time: at most so much of a run can be waiting."""
NAP = 0.01
"""Seconds between two looks at the plan."""
TELL_SECONDS = 1.0


class Patience:
    """`wait` naps and says whether there is any left."""

    def __init__(
        self,
        seconds: float,
        idle: Callable[[], None],
        *,
        tell: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`idle` is called before every nap: there wishes from outside are heard; what it raises ends the wait.

        `tell` is called once a second of waiting.
        """
        self._full, self._left = seconds, seconds
        self._idle, self._tell, self._clock, self._sleep = idle, tell, clock, sleep
        self._since = clock()
        self._told = self._since - TELL_SECONDS

    def wait(self) -> bool:
        """Nap a moment, out of the budget; False, at once, when it is empty."""
        now = self._clock()
        self._left = min(self._full, self._left + REFILL * (now - self._since))
        self._since = now
        if self._left < NAP:
            return False
        self._idle()
        if now - self._told >= TELL_SECONDS:
            self._told = now
            self._tell()
        self._sleep(NAP)
        self._left -= self._clock() - now
        return True
