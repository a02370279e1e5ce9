"""The vital signs of a run: how far it is, how well, how fast, how long it takes, and its newest checkpoint.

Every figure comes from the end of a file that survives restarts and pivots, so that a long history costs no more than
a short one. Reads only. Standard library, `andrea_rundir` without numpy and pydantic.
"""

from __future__ import annotations

import hashlib
from typing import Any

from andrea_cli import facts
from andrea_rundir import digests, entries
from andrea_rundir.entries import smooth
from andrea_rundir.names import RunDir
from andrea_service.presence import Presence


def vitals(run: RunDir, presence: Presence, tables: dict[str, Any], recent: facts.Recent, now: float) -> dict[str, Any]:
    """Step, max_steps, loss, ema and its step, tokens a second, seconds left; None for what is not known."""
    total = facts.key(tables, "optimizer", "max_steps")
    total = total if isinstance(total, int) else None
    ema_step, ema = smoothed(run, recent)
    return {
        "step": recent.step,
        "max_steps": total,
        "loss": facts.number(recent.steps[0], "loss") if recent.steps else None,
        "ema": ema,
        "ema_step": ema_step,
        "tokens_per_second": facts.tokens_per_second(recent.steps),
        "eta_seconds": _eta(presence, recent, total, now),
    }


def smoothed(run: RunDir, recent: facts.Recent) -> tuple[int | None, float | None]:
    """The smoothed loss and its step: of the newest entry of `.loss.json` (the proxy's), or of the newest checkpoint
    (the trainer's own), whichever is later, brought up to the newest step on record."""
    here = recent.step
    if here is None:
        return None, None
    known = [(step, ema) for step, ema in (_recorded(run, here), _guarded(recent.snapshot)) if ema is not None]
    at, ema = max(known, default=(0, None))
    for event in reversed(recent.steps):
        if event.get("step") == at + 1:
            at, ema = at + 1, smooth(ema, facts.number(event, "loss"))
    return (None, None) if ema is None else (at, ema)


def _recorded(run: RunDir, here: int) -> tuple[int, float | None]:
    """From the newest entry that is not of a step after `here`; those are of a life before and provisional."""
    for entry in entries.read_back(run.loss):
        step = entry.get("step")
        if isinstance(step, int) and step <= here:
            return step, facts.number(entry, "ema")
    return 0, None


def _guarded(snapshot: facts.Event | None) -> tuple[int, float | None]:
    """From what a checkpoint says of the guard."""
    guard = snapshot.get("guard") if snapshot is not None else None
    step = facts.number(snapshot, "step")
    if not isinstance(guard, dict) or step is None:
        return 0, None
    return int(step), facts.number(guard, "ema")


def _eta(presence: Presence, recent: facts.Recent, total: int | None, now: float) -> float | None:
    """Seconds until the last step, while it runs."""
    pace = facts.seconds_per_step(recent.steps)
    if not presence.alive or recent.step is None or total is None or pace is None:
        return None
    latest = facts.when(recent.steps[0])
    since = max(0.0, now - latest) if latest is not None else 0.0
    return max(0.0, (total - recent.step) * pace - since)


def newest_checkpoint(run: RunDir, *, verify: bool, now: float) -> dict[str, Any] | None:
    """The newest checkpoint, how old it is, and whether SHA256SUMS knows it; with `verify`, whether it matches."""
    for step, path in reversed(run.checkpoints().items()):
        try:
            stat = path.stat()
            line = digests.read(run.sums).get(path.name)
            verified = None
            if verify and line is not None:
                with path.open("rb") as file:
                    verified = hashlib.file_digest(file, "sha256").hexdigest() == line
        except FileNotFoundError:  # pruned since it was listed
            continue
        return {
            "step": step,
            "path": str(path),
            "bytes": stat.st_size,
            "age_seconds": max(0.0, now - stat.st_mtime),
            "digest": line,
            "verified": verified,
        }
    return None
