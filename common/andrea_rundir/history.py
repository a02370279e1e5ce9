"""The one reader of a run's past: joins `.loss.json` and `events/`, smooths on full data, thins for drawing.

Reads only. Imports numpy and this package.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from andrea_rundir.entries import Entry, encode, entry_of, latest, read
from andrea_rundir.events import Event, parse, read_back, segments
from andrea_rundir.names import RunDir
from andrea_rundir.shapes import is_record

_NUMBER = rb"(nan|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_ENTRY = re.compile(
    rb'\n\{"step":(\d{1,10}),"attempt":\d+,"loss":' + _NUMBER + rb',"ema":' + _NUMBER + rb',"arms":\{([^}]*)\},'
    rb'"lr":' + _NUMBER + rb',"grad_norm":[^,]+,"tokens":\d+,"seconds":[^,]+,"policy":"([^"]*)"'
)
"""What cannot be read so is left out."""
_PULLS = re.compile(rb'"([^"]+)":\[(\d+),')

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def entries(run: RunDir) -> list[Entry]:
    """The entry in force of every step, by step; steps that the proxy has not recorded yet come from the events."""
    found = latest(read(run.loss))
    last = max(found, default=0)
    return [*found.values(), *_later(run, last, found[last]["ema"] if last else None)]


def _later(run: RunDir, last: int, ema: float | None) -> list[Entry]:
    """Entries of the steps after `last`, made of the events; `ema` is the smoothed loss at `last`."""
    later: dict[int, Event] = {}
    for event in read_back(run.events):
        if event.get("event") == "step":
            if event["step"] <= last:
                break
            if is_record(event):
                later.setdefault(event["step"], event)
    made = []
    for step in sorted(later):
        made.append(entry_of(later[step], 1, ema))
        ema = made[-1]["ema"]
    return made


@dataclass(frozen=True)
class Curve:
    """Figures of every step over steps, `[n]`, steps ascending; NaN where a step has none."""

    steps: Integers
    loss: Floats
    """Nats a token."""
    ema: Floats
    lr: Floats
    pivots: tuple[int, ...]
    """Steps that were the last of their policy."""
    _arms: Sequence[bytes]

    def pulls(self, columns: int) -> dict[str, Integers]:
        """Sequences of each arm, by name, `[columns]`: summed over the columns of `envelope`."""
        starts = [*_starts(len(self.steps), columns).tolist(), len(self.steps)]
        sums: list[dict[bytes, int]] = []
        for start, end in pairwise(starts):
            column: dict[bytes, int] = {}
            for arm, count in _PULLS.findall(b" ".join(self._arms[start:end])):
                column[arm] = column.get(arm, 0) + int(count)
            sums.append(column)
        arms = sorted({arm for column in sums for arm in column})
        return {
            arm.decode(errors="replace"): np.array([column.get(arm, 0) for column in sums], dtype=np.int64)
            for arm in arms
        }


def curve(run: RunDir) -> Curve:
    """The figures in force of every recorded step; fast: the entries are not parsed as a whole."""
    try:
        data = run.loss.read_bytes().replace(b":null", b":nan")
    except FileNotFoundError:
        data = b""
    rows = _ENTRY.findall(data)
    last = max((int(row[0]) for row in rows), default=0)
    ema = next((float(row[2]) for row in reversed(rows) if int(row[0]) == last), math.nan)
    text = b"\n".join(encode(entry) for entry in _later(run, last, None if math.isnan(ema) else ema))
    rows += _ENTRY.findall(b"\n" + text.replace(b":null", b":nan"))
    if not rows:
        none = np.zeros(0)
        return Curve(none.astype(np.int64), none, none, none, (), ())
    steps, loss, emas, arms, lr, policies = zip(*rows, strict=True)
    numbers = np.array(steps).astype(np.int64)
    ordered, chosen = np.unique(numbers[::-1], return_index=True)
    chosen = len(numbers) - 1 - chosen  # the last one of each step
    names = [policies[i] for i in chosen.tolist()]
    return Curve(
        ordered,
        np.array(loss).astype(np.float64)[chosen],
        np.array(emas).astype(np.float64)[chosen],
        np.array(lr).astype(np.float64)[chosen],
        tuple(step for step, (one, other) in zip(ordered.tolist(), pairwise(names), strict=False) if one != other),
        [arms[i] for i in chosen.tolist()],
    )


def of_kind(run: RunDir, kind: str) -> list[Event]:
    """The last event of a kind (probe, audit, ...) of each step, by step."""
    found = {event["step"]: event for event in of_kinds(run, kind) if isinstance(event.get("step"), int)}
    return [found[step] for step in sorted(found)]


def of_kinds(run: RunDir, *kinds: str) -> Iterator[Event]:
    """All events of some kinds, oldest first; other lines are not parsed, and those that cannot be are left out."""
    starts = tuple(b'{"event":"%s"' % kind.encode() for kind in kinds)
    for path in segments(run.events):
        with path.open("rb") as file:
            for line in file:
                if line.startswith(starts) and line.endswith(b"\n"):
                    try:
                        yield parse(line)
                    except ValueError:
                        continue


def envelope(steps: Integers, values: Floats, columns: int) -> tuple[Integers, Floats, Floats]:
    """First step, least and greatest value of at most `columns` columns of equal numbers of steps: what a drawing
    of that width can show, no extreme left out. A column without a value is NaN."""
    if len(steps) == 0:
        return steps, values, values
    starts = _starts(len(steps), columns)
    low = np.fmin.reduceat(values, starts)
    high = np.fmax.reduceat(values, starts)
    return steps[starts], low, high


def _starts(n: int, columns: int) -> Integers:
    """Index of the first of `n` steps in each column."""
    width = min(columns, n)
    return np.arange(width, dtype=np.int64) * n // max(1, width)
