"""One arm's learning curve, kept as sums: what the slope learner fits.

A curve is e + b * (1 + n / n0) ** -a in bits per byte, n a count of pulls; (n0, a) runs over a grid, e >= 0 and
b >= 0 come from least squares. Only sums are kept, so the state does not grow with the run; a record at count m weighs
(m / n) ** fade at count n, so that the fit follows the newer part of a curve of another form. Standard library only.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

SCALES = (10.0, 40.0, 160.0, 640.0, 2560.0, 10240.0, 40960.0, 163840.0)
EXPONENTS = (0.25, 0.5, 1.0, 2.0)
GRID = tuple((scale, exponent) for scale in SCALES for exponent in EXPONENTS)
LEAST_RECORDS = 3.0
"""Faded records below which nothing is said: a curve has three free numbers."""
BIN = 1.0 / 32.0
"""A bin is closed once it holds this part of n in pulls: about 32 * ln(n) bins in all, whatever the run's length."""

ROUNDING = 1e-9
"""A curve that falls by less than this part of the loss over all of its n is flat: the rest is rounding."""


class Curve:
    """Sums over one arm's records, enough for the fit of every curve of the grid.

    Neighbouring records are gathered in a bin first, which enters the sums at its mean n.
    """

    fade: ClassVar[float] = 1.0
    __slots__ = ("bin", "count", "loss", "pulls", "records", "shapes", "square", "until")

    def __init__(self) -> None:
        self.count = 0.0  # the arm's own part of n, kept by the learner
        self.bin = [0.0, 0.0, 0.0, 0.0, 0.0]  # records, pulls, and summed over pulls: n, loss, loss^2
        self.records = self.pulls = self.loss = self.square = 0.0
        self.until = 0.0  # mean n of the last closed bin
        self.shapes = [[0.0, 0.0, 0.0] for _ in GRID]  # summed over pulls: height, height^2, loss * height

    def add(self, pulls: int, bits: float, n: float) -> None:
        """`pulls` pulls of mean loss `bits` (bits per byte, >= 0) at count `n`, which never falls."""
        gathered = self.bin
        gathered[0] += 1.0
        gathered[1] += pulls
        gathered[2] += pulls * n
        gathered[3] += pulls * bits
        gathered[4] += pulls * bits * bits
        if gathered[1] >= BIN * n:
            self._close_bin()

    def _close_bin(self) -> None:
        records, pulls, counts, loss, square = self.bin
        n = counts / pulls
        keep = (self.until / n) ** self.fade if self.until > 0.0 else 0.0
        self.records = keep * self.records + records
        self.pulls = keep * self.pulls + pulls
        self.loss = keep * self.loss + loss
        self.square = keep * self.square + square
        for sums, (scale, exponent) in zip(self.shapes, GRID, strict=True):
            height = (1.0 + n / scale) ** -exponent
            sums[0] = keep * sums[0] + pulls * height
            sums[1] = keep * sums[1] + pulls * height * height
            sums[2] = keep * sums[2] + loss * height
        self.until = n
        self.bin = [0.0, 0.0, 0.0, 0.0, 0.0]

    def fits(self, n: float) -> list[tuple[float, float]]:
        """(squared error, slope at `n` in bits per byte a count, >= 0) of every curve; [] while there is too little.

        The bin that is still open is left out: at most 1/32 of the arm's records.
        """
        if self.records < LEAST_RECORDS:
            return []
        total, loss = self.pulls, self.loss
        mean = loss / total
        scatter = max(self.square - loss * mean, 0.0) + 1e-9 * total
        least = 1e-12 * total
        fits = []
        for (heights, squares, products), (scale, exponent) in zip(self.shapes, GRID, strict=True):
            height = heights / total
            spread = squares - heights * height
            if spread <= least:
                continue
            both = products - heights * mean
            depth = min(both / spread, mean / height)
            base = 1.0 + n / scale
            slope = depth * exponent / scale * base**-exponent / base
            if slope * n <= ROUNDING * mean:
                fits.append((scatter, 0.0))
            else:
                fits.append((max(scatter - depth * (2.0 * both - depth * spread), least), slope))
        return fits

    def slope(self, n: float) -> float | None:
        """Likelihood-weighted mean slope at `n`: what one more count is expected to take off; None: too little known.

        The likelihood of a curve is that of Gaussian noise of unknown size: error ** (-degrees of freedom / 2).
        """
        fits = self.fits(n)
        if not fits:
            return None
        best = min(error for error, _ in fits)
        power = -0.5 * max(self.records - 2.0, 1.0)
        odds = [math.pow(error / best, power) for error, _ in fits]
        return sum(o * slope for o, (_, slope) in zip(odds, fits, strict=True)) / sum(odds)

    def to_state(self) -> dict[str, Any]:
        """Numbers and lists of numbers."""
        return {
            key: [list(sums) for sums in self.shapes] if key == "shapes" else getattr(self, key)
            for key in Curve.__slots__
        } | {"bin": list(self.bin)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """What `to_state` gave; KeyError, TypeError or ValueError for anything else."""
        curve = cls()
        for key in ("count", "loss", "pulls", "records", "square", "until"):
            setattr(curve, key, float(state[key]))
        curve.bin = [float(value) for value in state["bin"]]
        curve.shapes = [[float(value) for value in sums] for sums in state["shapes"]]
        if len(curve.bin) != 5 or [len(sums) for sums in curve.shapes] != [3] * len(GRID):
            raise ValueError("a curve of another form")
        return curve
