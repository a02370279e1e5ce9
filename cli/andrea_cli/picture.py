"""What `andrea plot` draws: a run's history thinned to what a picture can show, and the drawing of it.

Thinning keeps the least and the greatest value of every column, so that no spike is lost. Writes no file. Imports
numpy, and matplotlib while it draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from andrea_cli import lineage
from andrea_cli.stock import files
from andrea_rundir import events, history
from andrea_rundir.history import Floats, Integers
from andrea_rundir.names import RunDir

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 1000
"""Columns of the picture: about one a pixel."""
FEWEST = 20
"""Steps whose pulls make up a share: in one step an arm has all or nothing."""
WIDEST = 26
MARKS = {"pivots": ("C3", "--"), "restarts": ("0.6", ":"), "origin": ("C2", "-")}


@dataclass(frozen=True)
class Picture:
    """All that is drawn. Arrays are `[columns]` but for the looks, which are `[looks]`."""

    name: str
    count: int
    """Steps on record."""
    last: int
    steps: Integers
    """First step of each column."""
    loss: tuple[Floats, Floats]
    """Least and greatest of each column, nats a token."""
    ema: tuple[Floats, Floats]
    lr: Floats
    shares: tuple[Integers, dict[str, Floats]]
    """First steps of wider columns, and the part of their sequences that were an arm's, by arm."""
    probes: tuple[Integers, dict[str, Floats]]
    """Steps, and held-out bits a byte by arm; the prior-weighted mean as ""."""
    audits: tuple[Integers, Floats]
    """Steps, and scores: 100 is no sample that runs in circles."""
    marks: dict[str, list[int]]
    """Steps of checkpoints, of those kept for ever, pivots, restarts, and the origin of a fork."""


def gather(run: RunDir, columns: int = COLUMNS) -> Picture:
    """Read the history; a Picture of no steps when there is none."""
    curve = history.curve(run)
    steps, *loss = history.envelope(curve.steps, curve.loss, columns)
    ema = history.envelope(curve.steps, curve.ema, columns)[1:]
    return Picture(
        name=run.root.name,
        count=len(curve.steps),
        last=int(curve.steps[-1]) if len(steps) else 0,
        steps=steps,
        loss=(loss[0], loss[1]),
        ema=ema,
        lr=history.envelope(curve.steps, curve.lr, columns)[2],
        shares=_shares(curve, max(1, min(columns // 5, len(curve.steps) // FEWEST))),
        probes=_probes(history.of_kind(run, "probe")),
        audits=_audits(history.of_kind(run, "audit")),
        marks={**_checkpoints(run), "pivots": list(curve.pivots), **_starts(run)},
    )


def _shares(curve: history.Curve, columns: int) -> tuple[Integers, dict[str, Floats]]:
    pulls = curve.pulls(columns)
    total = np.maximum(1, sum(pulls.values()))
    steps = history.envelope(curve.steps, curve.lr, columns)[0]
    return steps, {arm: count / total for arm, count in pulls.items()}


def _probes(found: Sequence[events.Event]) -> tuple[Integers, dict[str, Floats]]:
    names = sorted({arm for event in found for arm in event.get("arms", {})})
    bits = {arm: _floats([event.get("arms", {}).get(arm) for event in found]) for arm in names}
    return _integers([event["step"] for event in found]), {"": _floats([event.get("mean") for event in found]), **bits}


def _audits(found: Sequence[events.Event]) -> tuple[Integers, Floats]:
    return _integers([event["step"] for event in found]), _floats([event.get("score") for event in found])


def _integers(values: list[int]) -> Integers:
    return np.array(values, dtype=np.int64)


def _floats(values: list[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _checkpoints(run: RunDir) -> dict[str, list[int]]:
    kept = {step for step, path in files(run) if path.parent != run.root}
    return {"checkpoints": list(run.checkpoints()), "kept": sorted(kept)}


def _starts(run: RunDir) -> dict[str, list[int]]:
    """Where a restart went on, and the step that the run was forked from or began with."""
    starts = [event["step"] for _, event in events.starts(run.events)]
    origin = lineage.read(run)
    return {"restarts": starts[1:], "origin": [] if origin is None else [origin["step"]]}


def draw(picture: Picture, kind: str) -> bytes:
    """The file's bytes; `kind` is png or svg."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 10), dpi=100)
    loss, shares, probes, audits, lr = figure.subplots(5, 1, sharex=True, height_ratios=(4, 2, 2, 1.2, 1.2))
    figure.subplots_adjust(left=0.09, right=0.82, top=0.96, bottom=0.06, hspace=0.12)
    _draw_loss(loss, picture)
    if arms := picture.shares[1]:
        ends = [*picture.shares[0].tolist(), picture.last]
        parts = [np.append(share, share[-1]) for share in arms.values()]
        colors = [_color(picture, arm) for arm in arms]
        shares.stackplot(ends, *parts, labels=list(map(_label, arms)), colors=colors, step="post")
    shares.set(ylabel="share of pulls", ylim=(0, 1))
    for arm, bits in picture.probes[1].items():
        color, width = (_color(picture, arm), 1) if arm else ("0.2", 2)
        probes.plot(picture.probes[0], bits, lw=width, color=color, label=_label(arm) or "mean")
    probes.set_ylabel("held-out bits/byte")
    audits.plot(*picture.audits, drawstyle="steps-post")
    audits.set(ylabel="sample score", ylim=(-5, 105))
    lr.plot(picture.steps, picture.lr)
    lr.set(ylabel="learning rate", xlabel="step")
    for axes in (loss, shares, probes):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small", frameon=False)
    for axes in (loss, shares, probes, audits, lr):
        for name, (color, style) in MARKS.items():
            for step in picture.marks[name]:
                axes.axvline(step, color=color, ls=style, lw=0.8)
    figure.align_ylabels()
    for axes in figure.axes:
        axes.yaxis.label.set_fontsize("small")
    file = BytesIO()
    figure.savefig(file, format=kind)
    return file.getvalue()


def _color(picture: Picture, arm: str) -> str:
    """An arm has one colour in all panels."""
    return f"C{sorted({*picture.shares[1], *picture.probes[1]} - {''}).index(arm)}"


def _label(arm: str) -> str:
    """An arm's name as it fits beside the panels; matplotlib would hide one that begins with an underscore."""
    return (" " if arm.startswith("_") else "") + (arm if len(arm) <= WIDEST else arm[: WIDEST - 1] + "\u2026")


def _draw_loss(axes: Axes, picture: Picture) -> None:
    for label, (low, high), style in (
        ("loss", picture.loss, {"lw": 0.6, "alpha": 0.35}),
        ("smoothed", picture.ema, {"lw": 1.5}),
    ):
        # From the least to the greatest of each column and on to the next: the line touches every extreme.
        both = np.stack([low, high], axis=1).ravel()
        axes.plot(np.repeat(picture.steps, 2), both, color="C0", label=label, **style)  # type: ignore[arg-type]
    floor = axes.get_ylim()[0]
    for name, size in (("checkpoints", 4), ("kept", 9)):
        steps = picture.marks[name]
        axes.plot(steps, [floor] * len(steps), "|", color="0.2", ms=size, clip_on=False, label=name)
    for name, (color, ls) in MARKS.items():
        if picture.marks[name]:
            axes.plot([], [], color=color, ls=ls, lw=0.8, label=name)
    axes.set(title=picture.name, ylabel="loss, nats/token", ylim=(floor, None))
