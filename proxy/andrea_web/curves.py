"""The curves of a run in memory, brought up to date from the end of `.loss.json`, and thinned to what a drawing shows.

Every figure is as it stands in the file: the smoothed loss was computed on full data when the entry was written. A
thinned curve keeps the least and the greatest value of every column, so no spike is lost. Memory: 24 bytes a step, and
24 an arm for 20 steps. Reads only. Imports numpy and `andrea_rundir`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from andrea_rundir.history import Floats, Integers, envelope
from andrea_rundir.lossfile import Entry

BLOCK = 20
"""Steps over which an arm's pulls and losses are summed."""
_PIECE = 256 << 10
_HEAD = b'{"step":'
_PAUSE = 0.002
"""Seconds after each piece, for those who have something to write."""


@dataclass(frozen=True)
class Stretch:
    """Some steps of a run, thinned to columns, `[n]`; NaN where a column has no value."""

    steps: Integers
    """The first step of each column."""
    times: Floats
    """When it was done, seconds since the epoch."""
    loss: tuple[Floats, Floats]
    """Least and greatest, nats a token."""
    ema: tuple[Floats, Floats]


class Curves:
    """Follows one file; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        """Reads nothing yet."""
        self._path, self._lock = path, threading.Lock()
        self._forget((0, 0))

    def _forget(self, file: tuple[int, int]) -> None:
        self._file, self._offset = file, 0
        self.last = 0
        """The last step on record."""
        self.version = 0
        """Grows with every entry."""
        self.policies: list[tuple[int, str]] = []
        """First step and id of every policy on record."""
        self._loss, self._ema, self._time = (np.full(1024, np.nan) for _ in range(3))
        self._arms: dict[str, Floats] = {}

    def update(self) -> None:
        """Take what has been added. A file that was replaced is read anew; one that is gone is an empty one."""
        with self._lock:
            while self._read_piece():
                time.sleep(_PAUSE)

    def stretch(self, first: int, last: int, columns: int) -> Stretch:
        """Steps `first` to `last`, as far as they are on record."""
        with self._lock:
            first, last = max(first, 1), min(last, self.last)
            steps = np.flatnonzero(~np.isnan(self._time[first : last + 1])) + first
            starts, *loss = envelope(steps, self._loss[steps], columns)
            ema = envelope(steps, self._ema[steps], columns)[1:]
            return Stretch(starts, np.maximum.accumulate(self._time[starts]), (loss[0], loss[1]), (ema[0], ema[1]))

    def arms(self, first: int, last: int, columns: int) -> tuple[Integers, dict[str, tuple[Floats, Floats]]]:
        """By arm, its share of pulls and its mean loss over columns of whole blocks; and each column's first step."""
        with self._lock:
            lo, hi = max(first - 1, 0) // BLOCK, (max(0, min(last, self.last)) + BLOCK - 1) // BLOCK
            if hi <= lo:
                return np.zeros(0, dtype=np.int64), {}
            width = min(columns, hi - lo)
            starts = np.arange(width) * (hi - lo) // width
            sums = {arm: np.add.reduceat(table[:, lo:hi], starts, axis=1) for arm, table in sorted(self._arms.items())}
            total = np.maximum(1.0, sum((pulls for pulls, _, _ in sums.values()), start=np.zeros(width)))
            with np.errstate(invalid="ignore"):
                found = {arm: (pulls / total, loss / counted) for arm, (pulls, counted, loss) in sums.items()}
            return (starts + lo) * BLOCK + 1, found

    def trend(self, over: int) -> float | None:
        """By how much the smoothed loss has changed over the last `over` steps; None where that is not known."""
        with self._lock:
            before = self._ema[self.last - over] if self.last > over else np.nan
            change = self._ema[self.last] - before
            return None if np.isnan(change) else float(change)

    def times_of(self, steps: list[int]) -> list[float | None]:
        """When they were done."""
        with self._lock:
            inside = [0 < step <= self.last and not np.isnan(self._time[step]) for step in steps]
            return [float(self._time[step]) if known else None for step, known in zip(steps, inside, strict=True)]

    def _read_piece(self) -> bool:
        """Take one piece of the file; whether there may be more. What is being written is left for the next time."""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if (stat.st_dev, stat.st_ino) != self._file or stat.st_size < self._offset:
                    self._forget((stat.st_dev, stat.st_ino))
                file.seek(self._offset)
                data = file.read(_PIECE)
        except OSError:
            if self._file != (0, 0):
                self._forget((0, 0))
            return False
        at = start = self._offset
        for line in data.split(b"\n")[:-1]:
            if line.startswith(_HEAD):
                try:
                    self._take(json.loads(line.rstrip(b",")))
                except ValueError:
                    break
                self._offset = at + len(line.rstrip(b","))
            at += len(line) + 1
        return self._offset > start

    def _take(self, entry: Entry) -> None:
        step, loss, ema = entry["step"], entry["loss"], entry["ema"]
        if step >= len(self._time):
            self._make_room(step)
        self._loss[step] = np.nan if loss is None else loss
        self._ema[step] = np.nan if ema is None else ema
        self._time[step] = datetime.fromisoformat(entry["time"]).timestamp()
        if entry["attempt"] == 1:  # what the curriculum has counted
            for arm, (pulls, mean, _) in entry["arms"].items():
                sums = self._table(arm)[:, (step - 1) // BLOCK]
                sums += (pulls, 0.0, 0.0) if mean is None else (pulls, pulls, pulls * mean)
            if not self.policies or self.policies[-1][1] != entry["policy"]:
                self.policies.append((step, entry["policy"]))
        self.last = max(self.last, step)
        self.version += 1

    def _table(self, arm: str) -> Floats:
        """Pulls, pulls that have a loss, and the sum of those losses, by block: `[3, blocks]`."""
        if arm not in self._arms:
            self._arms[arm] = np.zeros((3, len(self._time) // BLOCK + 1))
        return self._arms[arm]

    def _make_room(self, step: int) -> None:
        room = max(step + 1, 2 * len(self._time))
        more = np.full(room - len(self._time), np.nan)
        self._loss, self._ema, self._time = (np.concatenate((a, more)) for a in (self._loss, self._ema, self._time))
        for arm, table in self._arms.items():
            self._arms[arm] = np.pad(table, ((0, 0), (0, room // BLOCK + 1 - table.shape[1])))
