"""The recorder: turns step events into entries of `.loss.json`, each step once, replays only where they differ.

Promises that no step that the events tell of is missing, that reading events a second time adds nothing, and that
what the disk refuses waits, in order. Writes `.loss.json` through `andrea_rundir.lossfile`.
"""

from __future__ import annotations

from collections.abc import Iterable

from andrea_rundir.entry import FIGURES, entry_of
from andrea_rundir.events import Event
from andrea_rundir.lossfile import Entry, LossFile

AT_ONCE = 64
"""Entries a write: less than the room that the file grows ahead by."""


class Recorder:
    """Feeds one loss file. `waiting` entries have been made but not written."""

    def __init__(self, loss: LossFile) -> None:
        self.loss = loss
        self.waiting: list[Entry] = []
        self._fresh: dict[int, Entry] = {}

    def take(self, events: Iterable[Event]) -> list[str]:
        """Make entries of the step events; what was wrong with those that could not be used."""
        bad = []
        for event in events:
            if event.get("event") == "step":
                try:
                    self._take(event)
                except (KeyError, TypeError, ValueError) as error:
                    bad.append(f"a step event at {event.get('time')} cannot be used: {error!r}")
        return bad

    def flush(self) -> list[Entry]:
        """Write some of what waits; the entries that are now in the file, none when nothing waits.

        OSError when they cannot be written: they wait on.
        """
        written = self.waiting[:AT_ONCE]
        self.loss.append(written)
        self.waiting = self.waiting[AT_ONCE:]
        if not self.waiting:
            self._fresh = {}
        return written

    def _take(self, event: Event) -> None:
        step = event["step"]
        last = self._last(step)
        if last is not None and (all(last[n] == event[n] for n in FIGURES) or self._known(step, event["time"])):
            return
        before = self._last(step - 1)
        entry = entry_of(event, 1 if last is None else last["attempt"] + 1, before["ema"] if before else None)
        self._fresh[step] = entry
        self.waiting.append(entry)

    def _last(self, step: int) -> Entry | None:
        """The last entry of a step, written or waiting."""
        return self._fresh.get(step) or self.loss.at(step)

    def _known(self, step: int, time: str) -> bool:
        """Whether this very event has been recorded: events may be read twice."""
        return any(e["step"] == step and e["time"] == time for e in self.waiting) or self.loss.knows(step, time)
