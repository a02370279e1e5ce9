"""The one reader of a run's past: joins `.loss.json` and `events/`, smooths on full data, thins for drawing.

Reads only. Imports numpy and this package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from andrea_rundir import lossfile
from andrea_rundir.events import read_back, segments
from andrea_rundir.lossfile import Entry
from andrea_rundir.names import RunDir

Event = dict[str, Any]

EMA_KEEP = 0.99
"""Of the smoothed loss, from one step to the next: it looks back about 100 steps."""

_FIGURES = re.compile(rb'\n\{"step":(\d+),"attempt":\d+,"loss":([^,]+),"ema":([^,]+),')


def smooth(before: float | None, loss: float | None) -> float | None:
    """The smoothed loss after one more step (exponential moving average); a step without a loss leaves it."""
    if loss is None:
        return before
    return loss if before is None else EMA_KEEP * before + (1 - EMA_KEEP) * loss


def entry_of(event: Event, attempt: int, before: float | None) -> Entry:
    """The entry of a step event; `before` is the smoothed loss of the step before. KeyError for no step event."""
    return {
        "step": event["step"],
        "attempt": attempt,
        "loss": event["loss"],
        "ema": smooth(before, event["loss"]),
        "arms": event["arms"],
        "lr": event["lr"],
        "grad_norm": event["grad_norm"],
        "tokens": event["tokens"],
        "seconds": event["seconds"],
        "policy": event["policy"],
        "flags": event["flags"],
        "time": event["time"],
    }


def entries(run: RunDir) -> list[Entry]:
    """The entry in force of every step, by step; steps that the proxy has not recorded yet come from the events."""
    found = lossfile.latest(lossfile.read(run.loss))
    last = max(found, default=0)
    later: dict[int, Event] = {}
    for event in read_back(run.events):
        if event.get("event") == "step":
            if event["step"] <= last:
                break
            later.setdefault(event["step"], event)
    ema = found[last]["ema"] if last else None
    for step in sorted(later):
        found[step] = entry_of(later[step], 1, ema)
        ema = found[step]["ema"]
    return list(found.values())


@dataclass(frozen=True)
class Curve:
    """One figure over steps: int64 and float64 `[n]`, steps ascending; NaN where a step has none."""

    steps: NDArray[np.int64]
    loss: NDArray[np.float64]
    ema: NDArray[np.float64]


def curve(run: RunDir) -> Curve:
    """Loss and smoothed loss, nats a token, of every recorded step; fast: the entries are not parsed as a whole."""
    try:
        rows = _FIGURES.findall(run.loss.read_bytes())
    except FileNotFoundError:
        rows = []
    latest = {int(step): (_number(loss), _number(ema)) for step, loss, ema in rows}
    steps = sorted(latest)
    values = np.array([latest[step] for step in steps], dtype=np.float64).reshape(-1, 2)
    return Curve(np.array(steps, dtype=np.int64), values[:, 0], values[:, 1])


def of_kind(run: RunDir, kind: str) -> list[Event]:
    """All events of a kind (probe, audit, ...), the last one of each step, by step; other lines are not parsed."""
    found: dict[int, Event] = {}
    for path in segments(run.events):
        for event in _lines_of(path, b'{"event":"%s"' % kind.encode()):
            if isinstance(event.get("step"), int):
                found[event["step"]] = event
    return [found[step] for step in sorted(found)]


def envelope(
    steps: NDArray[np.int64], values: NDArray[np.float64], columns: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """First step, least and greatest value of at most `columns` columns of equal numbers of steps: what a drawing
    of that width can show, no extreme left out. A column without a value is NaN."""
    n = len(steps)
    if n == 0:
        return steps, values, values
    starts = np.unique(np.arange(min(columns, n)) * n // min(columns, n))
    low = np.fmin.reduceat(values, starts)
    high = np.fmax.reduceat(values, starts)
    return steps[starts], low, high


def _number(text: bytes) -> float:
    return float("nan") if text == b"null" else float(text)


def _lines_of(path: Path, start: bytes) -> Iterator[Event]:
    with path.open("rb") as file:
        for line in file:
            if line.startswith(start) and line.endswith(b"\n"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue
