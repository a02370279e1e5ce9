"""The drawing of two branches: smoothed loss, held-out text and the arms' shares by steps since they parted.

Pure but for matplotlib, which is imported only when something is drawn; writes no file.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from andrea_cli.alignment import Branch, Point
from andrea_rundir.history import envelope

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 1000
"""More cannot be told apart in a drawing of that width."""


def draw(one: Branch, other: Branch, points: list[Point], kind: str) -> bytes:
    """The file's bytes; `kind` is png or svg."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 9), dpi=110, layout="constrained")
    loss, held_out, shares = figure.subplots(3, 1, sharex=False, height_ratios=(3, 2, 2))
    for color, letter, branch in (("C0", "A", one), ("C1", "B", other)):
        _draw_loss(loss, branch, f"{letter}: {branch.run.root.name}", color)
    loss.set(ylabel="smoothed loss, nats/token", xlabel="steps since they parted", xlim=(0, None))
    loss.legend(frameon=False)
    probed = [point for point in points if point.difference is not None]
    for i, color in enumerate(("C0", "C1")):
        values = np.array([point.held_out[i] for point in probed], dtype=np.float64)
        held_out.plot([point.since for point in probed], values, "o-", ms=3, lw=1, color=color)
    held_out.set(ylabel="held-out bits/byte", xlabel="steps since they parted", xlim=loss.get_xlim())
    _draw_shares(shares, one, other)
    file = BytesIO()
    figure.savefig(file, format=kind)
    return file.getvalue()


def _draw_loss(axes: Axes, branch: Branch, label: str, color: str) -> None:
    steps = np.array([step - branch.fork for step in branch.entries], dtype=np.int64)
    ema = [entry["ema"] for entry in branch.entries.values()]
    values = np.array([np.nan if value is None else value for value in ema], dtype=np.float64)
    columns, low, high = envelope(steps, values, COLUMNS)
    axes.plot(np.repeat(columns, 2), np.stack([low, high], axis=1).ravel(), color=color, lw=1.2, label=label)


def _draw_shares(axes: Axes, one: Branch, other: Branch) -> None:
    end = min(one.last, other.last)
    both = [branch.shares(end) for branch in (one, other)]
    names = sorted({name for shares in both for name in shares})
    places = np.arange(len(names))
    for offset, color, shares in zip((0.2, -0.2), ("C0", "C1"), both, strict=True):
        axes.barh(places + offset, [shares.get(name, 0.0) for name in names], height=0.38, color=color)
    axes.set(xlabel=f"share of pulls, first {end:,} steps", xlim=(0, 1))
    axes.set_yticks(places, names)
