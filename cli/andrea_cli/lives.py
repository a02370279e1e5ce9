"""The lives of a run: how often it was started again, and what ends that nobody asked for have cost.

Reads the first event of every segment and, of each life, the steps that the next one trained again; no more, however
long the history. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from andrea_cli.facts import Event, number, when
from andrea_rundir import events
from andrea_rundir.names import RunDir

_LIFE = ("start", "step", "stop", "halt")


@dataclass(frozen=True)
class Lives:
    """Restarts, and what they cost."""

    restarts: int = 0
    steps_lost: int = 0
    """Steps that were trained again."""
    seconds_lost: float = 0.0
    """How long those had taken, checkpoints and looks between them included."""
    seconds_down: float = 0.0
    """From the last sign of life to the next start, where a life did not end by a stop."""


def lives(run: RunDir) -> Lives:
    """Count over all starts on record."""
    ends = [_end(run, segment, start) for segment, start in islice(events.starts(run.events), 1, None)]
    return Lives(
        len(ends),
        sum(steps for steps, _, _ in ends),
        sum(lost for _, lost, _ in ends),
        sum(down for _, _, down in ends),
    )


def _end(run: RunDir, segment: int, start: Event) -> tuple[int, float, float]:
    """Steps, their seconds, and seconds of standing still that the life before the start in `segment` lost."""
    begun, resumed = when(start), number(start, "step")
    if begun is None or resumed is None or not (tail := list(_tail(run, segment, resumed))):
        return 0, 0.0, 0.0
    lost = [(step, time) for kind, step, time in tail if kind == "step" and step > resumed]
    seconds = lost[0][1] - tail[-1][2] if lost else 0.0
    clean = next((kind for kind, _, _ in tail if kind in _LIFE), "") == "stop"
    return len({step for step, _ in lost}), max(0.0, seconds), 0.0 if clean else max(0.0, begun - tail[0][2])


def _tail(run: RunDir, segment: int, resumed: float) -> Iterator[tuple[str, float, float]]:
    """Kind, step (-1 for none) and time of the events before `segment`, newest first, back to the step `resumed`."""
    for event in events.read_back(run.events, before=segment):
        kind, step, time = event["event"], number(event, "step"), when(event)
        if time is None:
            continue
        yield kind, -1.0 if step is None else step, time
        if kind == "start" or (kind == "step" and step is not None and step <= resumed):
            return
