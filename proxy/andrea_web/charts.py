"""What the charts are drawn from, as the API gives it: columns of numbers, rounded to what a drawing can show. Pure.

Steps and times (seconds since the epoch) are of the first step of each column.
"""

from __future__ import annotations

import math

from andrea_rundir.history import Floats
from andrea_rundir.names import RunDir
from andrea_web.curves import Curves
from andrea_web.figures import Figures, lineage
from andrea_web.past import Past


def curve(curves: Curves, first: int, last: int, columns: int) -> Figures:
    """Least and greatest of loss and smoothed loss, a column."""
    found = curves.stretch(first, last, columns)
    return {
        "schema": 1,
        "last": curves.last,
        "steps": found.steps.tolist(),
        "times": [round(time, 1) for time in found.times.tolist()],
        "loss_min": _short(found.loss[0]),
        "loss_max": _short(found.loss[1]),
        "ema_min": _short(found.ema[0]),
        "ema_max": _short(found.ema[1]),
    }


def arms(curves: Curves, first: int, last: int, columns: int) -> Figures:
    """Share of pulls and mean loss of each arm, a column."""
    steps, found = curves.arms(first, last, columns)
    return {
        "schema": 1,
        "steps": steps.tolist(),
        "arms": {arm: {"share": _short(share), "loss": _short(loss)} for arm, (share, loss) in found.items()},
    }


def looks(run: RunDir, curves: Curves, past: Past, files: list[Figures]) -> Figures:
    """Held-out bits a byte, scores of samples, and the steps where something happened."""
    probes, audits = sorted(past.probes.items()), sorted(past.audits.items())
    names = sorted({arm for _, event in probes for arm in event["arms"]})
    begun = lineage(run)
    return {
        "schema": 1,
        "probes": {
            "steps": [step for step, _ in probes],
            "mean": [event["mean"] for _, event in probes],
            "arms": {arm: [event["arms"].get(arm) for _, event in probes] for arm in names},
        },
        "audits": {"steps": [step for step, _ in audits], "score": [event["score"] for _, event in audits]},
        "marks": {
            "checkpoints": [row["step"] for row in files[::-1]],
            "pivots": [step - 1 for step, _ in curves.policies[1:]],
            "restarts": [event["step"] for event in past.starts[1:]],
            "forks": [begun["step"]] if begun and isinstance(begun.get("step"), int) else [],
        },
    }


def _short(values: Floats) -> list[float | None]:
    """Five digits; null for what is not known."""
    return [None if math.isnan(value) else float(f"{value:.5g}") for value in values.tolist()]
