"""The recorder: turns step events into entries of `.loss.json`, each step once, replays only where they differ.

Promises that no step that the events tell of is missing, that reading events a second time adds nothing, that what the
disk refuses waits, in order, and that steps behind a hole are not believed before it is known what made it. Writes
`.loss.json` through `andrea_rundir.lossfile`.
"""

from __future__ import annotations

from collections.abc import Iterable

from andrea_rundir.entries import FIGURES, Entry, entry_of
from andrea_rundir.events import Event
from andrea_rundir.lossfile import LossFile

AT_ONCE = 64
"""Entries a write: less than the room that the file grows ahead by."""


class Recorder:
    """Feeds one loss file. `waiting` entries have been made but not written."""

    def __init__(self, loss: LossFile) -> None:
        self.loss = loss
        self.waiting: list[Entry] = []
        self._fresh: dict[int, Entry] = {}
        self._at: int | None = None
        self._held: list[Event] = []
        self._bad: list[str] = []

    @property
    def settled(self) -> bool:
        """Whether all that was taken is in the file: neither waits nor is held."""
        return not self.waiting and not self._held

    def resume(self, step: int) -> None:
        """Read on where a proxy before had read, and recorded, all up to `step`, or a part of that once more."""
        self._at = step

    def take(self, events: Iterable[Event]) -> list[str]:
        """Make entries of the step events; what was wrong with those that could not be used."""
        self._bad = []
        for event in events:
            try:
                match event.get("event"):
                    case "start":
                        self._release(event["step"])
                        self._at, self._held = event["step"], []
                    case "checkpoint":
                        self._release(event["step"])
                    case "step":
                        self._follow(event)
            except (KeyError, TypeError, ValueError) as error:
                self._bad.append(f"a {event['event']} event at {event.get('time')} cannot be used: {error!r}")
        return self._bad

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

    def _follow(self, event: Event) -> None:
        """Take a step that follows on what came before; hold one behind a hole, and all behind that.

        Steps come one by one, some again after a failed sync. Where one is missing its line was lost: to a power cut,
        if it had not been synced, and then a start from before it follows and it is trained again; else to damage, and
        it is gone.
        """
        step = event["step"]
        follows = self._last(step - 1) is not None if self._at is None else step <= self._at + 1
        if follows and not self._held:
            self._take(event)
            self._at = step
        else:
            self._held.append(event)

    def _release(self, durable: int) -> None:
        """All events through step `durable` were synced: a hole among them is damage, what lies behind it counts."""
        held, self._held = self._held, []
        if held and held[0]["step"] <= durable + 1:
            self._at = held[0]["step"] - 1
        for event in held:
            self._follow(event)

    def _take(self, event: Event) -> None:
        step = event["step"]
        last = self._last(step)
        if last is not None:
            if all(last[n] == event[n] for n in FIGURES):
                return
            if self._known(step, event["time"]):
                if last["time"] == event["time"]:
                    self._bad.append(f"the entry of step {step} is not what its event says: .loss.json was changed")
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
