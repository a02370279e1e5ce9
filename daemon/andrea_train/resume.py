"""What a run's events say about a checkpoint: everything the `.bin` itself cannot hold.

Promises to read no more of the history than it must, newest first. Writes no file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from andrea_corpus.rounds import after
from andrea_rundir import entries, planfile
from andrea_rundir.events import read_back
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan, round_of
from andrea_rundir.shapes import is_whole

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
    policy: Event | None = None
    """What the newest start says of its policy (id, text, arms), once a step was taken."""
    halted: bool = False
    """Whether a process ended since because the run was sick: whoever started the next one knows of it."""
    furthest: int = 0
    """The highest step on record."""
    attempts: int = 0


def record(folder: Path, step: int) -> Record:
    """Read the tail of the events in `folder` for a resume at `step`."""
    found = Record()
    for event in read_back(folder):
        kind = event.get("event")
        if kind == "halt" and found.snapshot is None and event.get("cause") == "health":
            found.halted = True
        if kind == "step":
            found.furthest = max(found.furthest, event["step"])
        elif kind == "fallback":
            plan = RoundPlan.from_json(event)
            if plan.last > step:
                found.rounds[plan.round] = plan  # read backwards: the first one recorded stays
        elif kind in ("audit", "probe", "snapshot") and event["step"] == step and is_whole(event):
            if getattr(found, kind) is None and (kind == "snapshot" or found.snapshot is None):
                setattr(found, kind, event)
        elif kind == "start" and {"attempt", "furthest"} <= event.keys():
            if found.start is None:
                found.start = event
                found.attempts = event["attempt"]
            found.furthest = max(found.furthest, event["furthest"])
            if found.snapshot is not None and event["furthest"] <= step:
                break  # nothing before this start can speak of a later step
    if found.start is not None and found.furthest:
        found.policy = found.start.get("policy")
    return found


@dataclass(frozen=True)
class Place:
    """Where the feed stands after a step, and which file says so ("" when none does)."""

    cursors: dict[str, int]
    credits: dict[str, int]
    round: RoundPlan | None
    source: str


def place(run: RunDir, past: Record, step: int, *, round_steps: int, batch_size: int) -> Place:
    """From the snapshot event; without one from the plan's line of that round; else the pulls on record, summed.

    For a checkpoint of which no history speaks (a bare file) all cursors and credits are zero: an even split.
    """
    if past.snapshot is not None:
        plan = past.snapshot["round"]
        current = RoundPlan.from_json(plan) if plan else None
        return Place(past.snapshot["cursors"], past.snapshot["credits"], current, "events")
    if step == 0:
        return Place({}, {}, None, "")
    try:
        line = planfile.line_of(run.plan, round_of(step, round_steps))
        there = after(line.plan, batch_size, until=step) if line is not None else None
    except ValueError:
        line = there = None
    if line is not None and there is not None and there.step == step:
        return Place(dict(there.cursors), dict(there.credits), line.plan, run.plan.name)
    cursors: dict[str, int] = {}
    for entry in entries.latest(e for e in entries.read(run.loss) if e["step"] <= step).values():
        for arm, (pulls, *_) in entry["arms"].items():
            cursors[arm] = cursors.get(arm, 0) + pulls
    return Place(cursors, {}, None, run.loss.name if cursors else "")
