"""The loss as a drawing for who has no scripts: the points of a polyline and of the band around it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from andrea_web.curves import Stretch

WIDTH, HEIGHT = 600, 160
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Drawing:
    """`line` is the smoothed loss, `band` the range of the raw one, in a box of WIDTH by HEIGHT."""

    line: Points
    band: Points
    low: float
    high: float
    first: int
    last: int


def draw(stretch: Stretch) -> Drawing | None:
    """None where there is nothing to draw."""
    low, high = stretch.loss
    known = ~np.isnan(low) & ~np.isnan(stretch.ema[1])
    if known.sum() < 2:
        return None
    steps, low, high, ema = stretch.steps[known], low[known], high[known], stretch.ema[1][known]
    bottom, top = float(low.min()), float(high.max())
    x = (steps - steps[0]) / (steps[-1] - steps[0]) * WIDTH

    def points(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Points:
        y = HEIGHT - (values - bottom) / max(top - bottom, 1e-9) * HEIGHT
        return list(zip(x.tolist(), y.tolist(), strict=True))

    return Drawing(points(ema), points(high) + points(low)[::-1], bottom, top, int(steps[0]), int(steps[-1]))
