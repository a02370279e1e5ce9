"""What a run's events say about a checkpoint: everything the `.bin` itself cannot hold.

Promises to read no more of the history than it must, newest first. Standard library only; writes no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from andrea_rundir.events import read_back
from andrea_rundir.plan import RoundPlan

Event = dict[str, Any]


@dataclass
class Record:
    """The events that matter for going on after step S."""

    snapshot: Event | None = None
    """The newest snapshot event of S: cursors, credits, guard and round; None for a file from elsewhere."""
    audit: Event | None = None
    probe: Event | None = None
    rounds: dict[int, RoundPlan] = field(default_factory=dict)
    """Fallback rounds that end after S, as first recorded."""
    start: Event | None = None
    """The newest start event."""
    halted: bool = False
    """Whether the last process ended by exit 78."""
    furthest: int = 0
    """The highest step on record."""
    attempts: int = 0


def record(folder: Path, step: int) -> Record:
    """Read the tail of the events in `folder` for a resume at `step`."""
    found = Record()
    first = True
    for event in read_back(folder):
        kind = event.get("event")
        if first:
            found.halted, first = kind == "halt", False
        if kind == "step":
            found.furthest = max(found.furthest, event["step"])
        elif kind == "fallback":
            plan = RoundPlan.from_json(event)
            if plan.last > step:
                found.rounds[plan.round] = plan  # read backwards: the first one recorded stays
        elif kind in ("audit", "probe", "snapshot") and event["step"] == step:
            if getattr(found, kind) is None and (kind == "snapshot" or found.snapshot is None):
                setattr(found, kind, event)
        elif kind == "start":
            if found.start is None:
                found.start = event
                found.attempts = event["attempt"]
            found.furthest = max(found.furthest, event["furthest"])
            if found.snapshot is not None and event["furthest"] <= step:
                break  # nothing before this start can speak of a later step
    return found
