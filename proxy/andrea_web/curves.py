"""The curves of a run in memory, brought up to date from the end of `.loss.json`, and thinned to what a drawing shows.

Every figure is as it stands in the file: the smoothed loss was computed on full data when the entry was written. A
thinned curve keeps the least and the greatest value of every column, so no spike is lost. Memory: 32 bytes a step on
record, whatever its number, and 24 an arm for 20 steps. Reads only. Imports numpy and `andrea_rundir`.
"""

from __future__ import annotations

import math
import os
import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from andrea_cli import facts
from andrea_rundir.ascending import Ascending
from andrea_rundir.entries import Entry, parse
from andrea_rundir.history import Floats, Integers, envelope

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


class _Table(Ascending):
    """Figures that are read as numpy has them."""

    def between(self, first: int, last: int) -> tuple[Integers, Floats]:
        """Keys `first` to `last`, both included, `[n]`, and their figures, `[rows, n]`; copies."""
        lo, hi = bisect_left(self.keys, first), bisect_right(self.keys, last)
        return np.array(self.keys[lo:hi], dtype=np.int64), np.array([row[lo:hi] for row in self.rows])

    def column(self, key: int) -> Floats | None:
        """The figures of a key; None when it is not there."""
        found = self.between(key, key)[1]
        return found[:, 0] if found.size else None


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
        self._steps = _Table("d", 3, math.nan)
        """Loss, smoothed loss and time, by step."""
        self._arms: dict[str, _Table] = {}
        """By arm, its pulls, its pulls that have a loss and the sum of those losses, by block, of blocks with any."""

    def update(self) -> None:
        """Take what has been added. A file that was replaced is read anew; one that is gone is an empty one."""
        with self._lock:
            while self._read_piece():
                time.sleep(_PAUSE)

    def stretch(self, first: int, last: int, columns: int) -> Stretch:
        """Steps `first` to `last`, as far as they are on record."""
        with self._lock:
            steps, (loss, ema, times) = self._steps.between(first, last)
            starts, *losses = envelope(steps, loss, columns)
            emas = envelope(steps, ema, columns)[1:]
            at = np.maximum.accumulate(times[np.searchsorted(steps, starts)])
            return Stretch(starts, at, (losses[0], losses[1]), emas)

    def arms(self, first: int, last: int, columns: int) -> tuple[Integers, dict[str, tuple[Floats, Floats]]]:
        """By arm, its share of pulls and its mean loss over columns of whole blocks; and each column's first step."""
        with self._lock:
            lo, hi = (max(first, 1) - 1) // BLOCK, (last - 1) // BLOCK
            parts = {arm: table.between(lo, hi) for arm, table in sorted(self._arms.items())}
            blocks = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(part[0] for part in parts.values())]))
            width = min(columns, len(blocks))
            starts = np.arange(width) * len(blocks) // max(1, width)
            total, sums = np.zeros(width), {}
            for arm, (keys, values) in parts.items():
                column = np.searchsorted(starts, np.searchsorted(blocks, keys), side="right") - 1
                sums[arm] = [np.bincount(column, row, minlength=width) for row in values]
                total += sums[arm][0]
            with np.errstate(invalid="ignore"):
                found = {arm: (n / np.maximum(1.0, total), loss / counted) for arm, (n, counted, loss) in sums.items()}
            return blocks[starts] * BLOCK + 1, found

    def trend(self, over: int) -> float | None:
        """By how much the smoothed loss has changed over the last `over` steps; None where that is not known."""
        with self._lock:
            now, before = self._steps.column(self.last), self._steps.column(self.last - over)
            change = np.nan if now is None or before is None else now[1] - before[1]
            return None if np.isnan(change) else float(change)

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
                    self._take(parse(line.rstrip(b",")))
                except ValueError:
                    break
                self._offset = at + len(line.rstrip(b","))
            at += len(line) + 1
        return self._offset > start

    def _take(self, entry: Entry) -> None:
        step, loss, ema = entry["step"], entry["loss"], entry["ema"]
        i, (losses, emas, times) = self._steps.place(step), self._steps.rows
        losses[i] = math.nan if loss is None else loss
        emas[i] = math.nan if ema is None else ema
        times[i] = facts.moment(entry["time"]) or 0.0  # one that cannot be read: drawn at that of the step before
        if entry["attempt"] == 1:  # what the curriculum has counted
            for arm, (pulls, mean, _) in entry["arms"].items():
                if (table := self._arms.get(arm)) is None:
                    table = self._arms[arm] = _Table("d", 3, 0.0)
                i, (counts, counted, sums) = table.place((step - 1) // BLOCK), table.rows
                counts[i] += pulls
                if mean is not None:
                    counted[i] += pulls
                    sums[i] += pulls * mean
            if not self.policies or self.policies[-1][1] != entry["policy"]:
                self.policies.append((step, entry["policy"]))
        self.last = max(self.last, step)
        self.version += 1
