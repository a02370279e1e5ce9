"""What the files of a run say, read as light as can be: settings by tomllib, the newest events from the end.

Reads only. Standard library, `andrea_rundir` without numpy and pydantic.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Any

from andrea_rundir import events
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir

LOOK_BACK = 5000
"""Events read at most: warnings older than that are left to `events/`."""
RECENT_STEPS = 100
"""Steps over which speed is averaged."""

Event = dict[str, Any]


def settings(run: RunDir) -> dict[str, Any]:
    """The tables of run.toml; Refused when there is no run, BadConfig when it is not TOML."""
    try:
        return tomllib.loads(run.run_toml.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise run.missing() from None
    except (ValueError, RecursionError) as error:
        raise BadConfig("run.toml cannot be read", where=str(run.run_toml), found=str(error)) from None


def key(tables: Mapping[str, Any], section: str, name: str) -> Any:
    """A value of run.toml; None when it is not there."""
    table = tables.get(section)
    return table.get(name) if isinstance(table, dict) else None


@dataclass
class Recent:
    """The newest events of each kind that is shown, newest first."""

    position: Event | None = None
    """The newest step event, or the start event when no step followed it."""
    steps: list[Event] = field(default_factory=list)
    warnings: list[Event] = field(default_factory=list)
    card: Event | None = None
    audit: Event | None = None
    probe: Event | None = None
    snapshot: Event | None = None

    @property
    def step(self) -> int | None:
        """Steps done; None when nothing says."""
        value = self.position.get("step") if self.position is not None else None
        return value if isinstance(value, int) else None


def recent(run: RunDir, most: int = LOOK_BACK) -> Recent:
    """Read the tail of the events, `most` of them: steps, warnings and the card's
    figures since the newest start, and the newest looks at
    the model, older ones too if they are of steps that it went on from."""
    found, resumed = Recent(), None
    for line in islice(events.lines_back(run.events), most):
        if resumed is not None and found.audit and found.probe and found.snapshot:
            break
        # Most are steps of which nothing more is shown: decoding each is what a look would wait for.
        enough = resumed is not None or len(found.steps) == RECENT_STEPS
        if (enough and events.is_step(line)) or (event := events.decode(line)) is None:
            continue
        kind, step = event["event"], event.get("step")
        if kind in ("step", "start") and found.position is None:
            found.position = event
        if kind in ("audit", "probe", "snapshot"):
            if getattr(found, kind) is None and (resumed is None or (isinstance(step, int) and step <= resumed)):
                setattr(found, kind, event)
        elif resumed is not None:
            continue
        elif kind == "step":
            found.steps.append(event)
        elif kind == "warning":
            found.warnings.append(event)
        elif kind == "card" and found.card is None:
            found.card = event
        elif kind == "start":
            resumed = step if isinstance(step, int) else 0
    return found


def newest(run: RunDir) -> Event | None:
    """The last event on record."""
    return next(events.read_back(run.events), None)


def since(run: RunDir, marker: Event | None) -> list[Event]:
    """The events after `marker`, in order; read from the end, so that a long history costs nothing."""
    later = list(takewhile(lambda event: event != marker, events.read_back(run.events)))
    return later[::-1]


def tail(run: RunDir) -> events.Tail:
    """Follows the events that come from now on."""
    listed = events.segments(run.events)
    return events.Tail(run.events, (int(listed[-1].stem), listed[-1].stat().st_size) if listed else (0, 0))


def number(event: Mapping[str, Any] | None, name: str) -> float | None:
    """A finite number in an event; None for anything else."""
    value = event.get(name) if event is not None else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def when(event: Mapping[str, Any]) -> float | None:
    """An event's time, in seconds since the epoch."""
    return moment(event.get("time"))


def moment(text: object) -> float | None:
    """Seconds since the epoch of a time as events have it; None for anything else."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):  # of the year 1, say
        return None


def tokens_per_second(steps: list[Event]) -> float | None:
    """Mean speed inside steps, so that audits and probes between them do not count."""
    pairs = [(number(event, "tokens"), number(event, "seconds")) for event in steps]
    tokens = math.fsum(t for t, s in pairs if t is not None and s is not None)
    seconds = math.fsum(s for t, s in pairs if t is not None and s is not None)
    return tokens / seconds if seconds > 0 else None


def seconds_per_step(steps: list[Event]) -> float | None:
    """Mean time from step to step by the clock, everything between them included: what an ETA needs."""
    times = [time for event in steps if (time := when(event)) is not None]
    if len(times) < 2 or times[0] <= times[-1]:
        return None
    return (times[0] - times[-1]) / (len(times) - 1)
