"""One look at the run for everybody who watches: however many pages are open, the files are read once a second.

Promises that what cannot be read is said, and that the next look tries again. Reads only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from andrea_cli.vitals import newest_checkpoint
from andrea_rundir.faults import Fault
from andrea_rundir.names import RunDir
from andrea_web import figures
from andrea_web.curves import Curves
from andrea_web.figures import Figures
from andrea_web.past import Past

FAST_SECONDS, SLOW_SECONDS = 0.8, 5.0

Made = TypeVar("Made")


class Fresh(Generic[Made]):
    """A value that is made anew when it is asked for and older than `seconds`; one caller makes it, others wait."""

    def __init__(self, seconds: float, make: Callable[[], Made]) -> None:
        self._seconds, self._make, self._lock = seconds, make, threading.Lock()
        self._made: tuple[float, Made] | None = None

    def get(self) -> Made:
        """The value."""
        with self._lock:
            if self._made is None or time.monotonic() - self._made[0] > self._seconds:
                made = self._make()
                self._made = (time.monotonic(), made)
            return self._made[1]


class Watcher:
    """What all requests share. Figures have a `fault` where the run cannot be read."""

    def __init__(self, run: RunDir) -> None:
        """Reads nothing yet."""
        self.run = run
        self.curves, self.past = Curves(run.loss), Past(run.events)
        self._slow = Fresh(SLOW_SECONDS, lambda: figures.slow(run, time.time()))
        self._fast = Fresh(FAST_SECONDS, self._look)
        self._check: tuple[object, bool | None] = (None, None)
        self._checking = threading.Lock()
        self._files = Fresh(SLOW_SECONDS, lambda: figures.checkpoints(run, self.past))

    def figures(self) -> Figures:
        """As /api/run gives them."""
        return self._fast.get()

    def checkpoints(self) -> list[Figures]:
        """As /api/checkpoints gives them."""
        return self._files.get()

    def _verified(self, newest: Figures) -> bool | None:
        """Whether the newest checkpoint is what its digest says; None until a thread has read it."""
        which = (newest["step"], newest["digest"])
        if self._check[0] != which and self._checking.acquire(blocking=False):
            threading.Thread(target=self._verify, args=(which,), name="digest", daemon=True).start()
        return self._check[1] if self._check[0] == which else None

    def _verify(self, which: object) -> None:
        try:
            found = newest_checkpoint(self.run, verify=True, now=time.time())
            if found is not None:
                self._check = ((found["step"], found["digest"]), found["verified"])
        except OSError:  # the next look tries again
            pass
        finally:
            self._checking.release()

    def _look(self) -> Figures:
        try:
            self.curves.update()
            self.past.update()
            found = figures.fast(self.run, self._slow.get(), self.curves, self.past, time.time())
            if found["checkpoint"] is not None:
                found["checkpoint"] = found["checkpoint"] | {"verified": self._verified(found["checkpoint"])}
            return found
        except Fault as fault:
            return {"schema": 1, "now": time.time(), "fault": fault.lines()}
        except OSError as error:
            return {"schema": 1, "now": time.time(), "fault": [f"{error.strerror}: {error.filename}"]}
