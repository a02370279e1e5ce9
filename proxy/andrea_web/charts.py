"""What the charts are drawn from, as the API gives it: columns of numbers, rounded to what a drawing can show. Pure.

Steps and times (seconds since the epoch) are of the first step of each column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from andrea_rundir.names import RunDir
from andrea_web.curves import Curves
from andrea_web.figures import Figures, origin
from andrea_web.past import Past

LOOKS = 300
"""Probes and audits that are drawn at most."""


def curve(curves: Curves, first: int, last: int, columns: int) -> Figures:
    """Least and greatest of loss and smoothed loss, a column."""
    found = curves.stretch(first, last, columns)
    return {
        "schema": 1,
        "last": curves.last,
        "steps": found.steps.tolist(),
        "times": [round(time, 1) for time in found.times.tolist()],
        "loss_min": _short(found.loss[0].tolist()),
        "loss_max": _short(found.loss[1].tolist()),
        "ema_min": _short(found.ema[0].tolist()),
        "ema_max": _short(found.ema[1].tolist()),
    }


def arms(curves: Curves, first: int, last: int, columns: int) -> Figures:
    """Share of pulls and mean loss of each arm, a column."""
    steps, found = curves.arms(first, last, columns)
    return {
        "schema": 1,
        "steps": steps.tolist(),
        "arms": {
            arm: {"share": _short(share.tolist()), "loss": _short(loss.tolist())}
            for arm, (share, loss) in found.items()
        },
    }


def looks(run: RunDir, curves: Curves, past: Past, files: list[Figures]) -> Figures:
    """Held-out bits a byte, scores of samples, and the steps where something happened."""
    probes, audits = _thin(past.probes), _thin(past.audits)
    names = sorted({arm for event in probes for arm in event["arms"]})
    begun = origin(run)
    return {
        "schema": 1,
        "probes": {
            "steps": [event["step"] for event in probes],
            "mean": _short([event["mean"] for event in probes]),
            "arms": {arm: _short([event["arms"].get(arm) for event in probes]) for arm in names},
        },
        "audits": {"steps": [event["step"] for event in audits], "score": [event["score"] for event in audits]},
        "marks": {
            "checkpoints": [row["step"] for row in files[::-1]],
            "pivots": [step - 1 for step, _ in curves.policies[1:]],
            "restarts": [event["step"] for event in past.starts[1:]],
            "forks": [begun["step"]] if begun and isinstance(begun.get("step"), int) and begun["step"] else [],
        },
    }


def _thin(looks: dict[int, Figures]) -> list[Figures]:
    """At most LOOKS of them, evenly over the steps, the newest among them."""
    steps = sorted(looks)
    return [looks[step] for step in steps[:: -max(1, math.ceil(len(steps) / LOOKS))][::-1]]


def _short(values: Iterable[float | None]) -> list[float | None]:
    """Five digits; null for what is not known."""
    return [None if value is None or math.isnan(value) else float(f"{value:.5g}") for value in values]
