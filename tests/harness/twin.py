"""The twin check: a run that was hurt must equal one that was not, byte for byte and figure for figure."""

from __future__ import annotations

from typing import Any

from andrea_rundir.events import read
from andrea_rundir.names import RunDir

CLOCKS = ("time", "seconds", "event")


def last_by_step(run: RunDir, kind: str) -> dict[int, dict[str, Any]]:
    """The last event of a kind for every step, clock fields left out."""
    found = {}
    for event in read(run.events):
        if event.get("event") == kind:
            found[event["step"]] = {name: value for name, value in event.items() if name not in CLOCKS}
    return found


def figures(run: RunDir) -> dict[int, dict[str, Any]]:
    """Losses, norms, rates, arms, cursors and credits by step."""
    return last_by_step(run, "step")


def audits(run: RunDir) -> dict[int, dict[str, Any]]:
    """Sample audits by step."""
    return last_by_step(run, "audit")


def probes(run: RunDir) -> dict[int, dict[str, Any]]:
    """Held-out measurements by step."""
    return last_by_step(run, "probe")


def twin_diff(hurt: RunDir, whole: RunDir, step: int, *, cadence: int) -> list[str]:
    """Every way in which two runs that both reached `step` differ; empty when they are twins.

    Audits are compared at the cadence only: a signal makes checkpoints of its own.
    """
    different = []
    if hurt.checkpoint(step).read_bytes() != whole.checkpoint(step).read_bytes():
        different.append(f"{hurt.checkpoint(step).name} differs")
    mine, theirs = figures(hurt), figures(whole)
    different += [
        f"step {s}: {mine.get(s)} != {theirs.get(s)}" for s in range(1, step + 1) if mine.get(s) != theirs.get(s)
    ]
    for name, of in (("audit", audits), ("probe", probes)):
        mine, theirs = of(hurt), of(whole)
        edges = [s for s in theirs if s % cadence == 0]
        different += [f"{name} {s}: {mine.get(s)} != {theirs[s]}" for s in edges if mine.get(s) != theirs[s]]
    return different
