"""The twin check: a run that was hurt must equal one that was not, byte for byte and figure for figure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from andrea_rundir.planfile import Line
from andrea_rundir.planfile import read as read_plan

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


def entries(run: RunDir) -> list[dict[str, Any]]:
    """All of `.loss.json`, in order, clock fields left out."""
    found = json.loads(run.loss.read_bytes())
    return [{name: value for name, value in entry.items() if name not in CLOCKS} for entry in found]


def plan_in_force(run: RunDir) -> list[Line]:
    """The last line of each round, policy texts left out: what a plan says once its void lines are passed over."""
    newest = {line.plan.round: line for line in read_plan(run.plan)}
    return [replace(newest[number], policy_text=None) for number in sorted(newest)]


def sidecar_diff(hurt: RunDir, whole: RunDir, *, fell_back: bool = False) -> list[str]:
    """Every way in which two proxies' files differ; where rounds fell back, plans are compared as they are in force."""
    different = []
    mine, theirs = entries(hurt), entries(whole)
    different += [f"entry {i}: {a} != {b}" for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b]
    if len(mine) != len(theirs):
        different.append(f"{len(mine)} entries != {len(theirs)}")
    if fell_back:
        different += [
            f"plan: {a} != {b}" for a, b in zip(plan_in_force(hurt), plan_in_force(whole), strict=True) if a != b
        ]
    elif hurt.plan.read_bytes() != whole.plan.read_bytes():
        different.append("plan.jsonl differs")
    a, b = (json.loads(run.state.read_bytes()) for run in (hurt, whole))
    different += [
        f"state {name}: {a[name]} != {b[name]}" for name in ("policy", "step", "phase", "arms") if a[name] != b[name]
    ]
    return different
