"""Figures in memory by an ascending number, a step or a block of steps: made for numbers that come in order, right for
any. A number and its figures cost 8 bytes each. Reads and writes nothing. Imports the standard library."""

from __future__ import annotations

from array import array
from bisect import bisect_left


class Ascending:
    """`keys`, and as many `rows` as a key has figures: those of `keys[i]` stand at `i` in every row."""

    def __init__(self, typecode: str, rows: int, fill: float) -> None:
        """Holds no key; a figure is of an array's `typecode`, and `fill` until it is set."""
        self._fill = fill
        self.keys = array("q")
        self.rows: list[array[float]] = [array(typecode) for _ in range(rows)]

    def find(self, key: int) -> int:
        """Where in the rows the figures of a key stand; -1 when it is not there."""
        i = bisect_left(self.keys, key)
        return i if i < len(self.keys) and self.keys[i] == key else -1

    def place(self, key: int) -> int:
        """As `find`; a key that is not there is given its place."""
        keys = self.keys
        if not keys or key > keys[-1]:  # nearly all
            i = len(keys)
        elif keys[i := bisect_left(keys, key)] == key:
            return i
        keys.insert(i, key)
        for row in self.rows:
            row.insert(i, self._fill)
        return i
