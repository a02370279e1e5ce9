"""The figures of the page, as /api/run gives them: what `andrea status` says, and what follows from it.

Every figure comes from a file of the run, so it survives restarts and pivots; the few that are of this moment (disk,
memory of the trainer) come from the system. Reads only.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from andrea_cli import facts, lineage
from andrea_cli.status import status
from andrea_cli.use import start_command
from andrea_cli.vitals import newest_checkpoint, vitals
from andrea_rundir import config, sidecars
from andrea_rundir.checkpoint import file_size
from andrea_rundir.faults import Fault
from andrea_rundir.names import RunDir, checkpoint_step
from andrea_service import identity
from andrea_service.presence import Presence, look
from andrea_web.curves import Curves
from andrea_web.past import Past

TREND_STEPS = 1000
FEW_EVENTS = 150
QUIET_SECONDS, QUIET_STEPS = 60.0, 20
"""A trainer that has said nothing for so long, and for so many times its last step, is remarked on."""
FEW_DAYS = 3.0
FEW_WARNINGS = 3
DAY = 86400.0

Figures = dict[str, Any]


def slow(run: RunDir, now: float) -> Figures:
    """What need not be looked at every second: all that `andrea status --json` prints, and the room on the disk."""
    found = status(run, verify=False, now=now) | {"retired": retired(run)}
    try:
        settings = config.load(run.run_toml)
    except Fault:
        return found | {"id": None, "disk": None}
    free, total = _space(run.root)
    grows = _growth(run, settings, found["step"] or 0)
    pace = facts.seconds_per_step(facts.recent(run, FEW_EVENTS).steps)
    enough = free > grows * max(0, settings.optimizer.max_steps - (found["step"] or 0))
    days = free / (grows / pace * DAY) if pace and grows > 0 and not enough else None
    return found | {"id": settings.run.id, "disk": {"free": free, "total": total, "days": days, "enough": enough}}


def fast(run: RunDir, known: Figures, curves: Curves, past: Past, now: float) -> Figures:
    """`known` (from `slow`) with everything that changes from step to step as it is now."""
    presence, proxy = look(run), look(run, "proxy")
    pid = presence.identity.get("pid") if presence.identity and presence.alive else None
    recent = facts.recent(run, FEW_EVENTS)
    newest = recent.steps[0] if recent.steps else None
    at = facts.when(newest) if newest else None
    found = known | {
        "schema": 1,
        "now": now,
        "state": presence.state,
        "sentence": presence.sentence,
        "pid": pid,
        "process": identity.name(presence.identity) if presence.identity and presence.alive else None,
        "proxy": proxy.sentence,
        "ours": proxy.alive and proxy.identity is not None and proxy.identity.get("pid") == os.getpid(),
        **vitals(run, presence, facts.settings(run), recent, now),
        "trend": curves.trend(TREND_STEPS),
        "trend_steps": TREND_STEPS,
        "step_time": at,
        "step_seconds": facts.number(newest, "seconds"),
        "quiet_seconds": max(0.0, now - at) if at is not None else None,
        "checkpoint": newest_checkpoint(run, verify=False, now=now),
        "flags": list(newest.get("flags", [])) if newest else [],
        "memory": _memory(pid) if pid is not None else None,
        "start": None if presence.alive else start_command(run.root),
        "recorded": curves.last,
    }
    found["warnings"] = [_warning(event) for event in list(past.warnings)[::-1]]
    found["audit"] = _newest(past.audits, "step", "score", "alarm") or found["audit"]
    found["probe"] = _newest(past.probes, "step", "mean", "arms") or found["probe"]
    found["banners"] = banners(found, presence)
    return found


def banners(found: Figures, presence: Presence) -> list[tuple[str, str]]:
    """What must not be overlooked, the gravest first: how grave (alarm, warning, note), and the sentence."""
    shown: list[tuple[str, str]] = []
    if presence.state in ("halted", "stale", "foreign", "unknown"):
        shown.append(("alarm", presence.sentence))
    elif not presence.alive:
        shown.append(("note", presence.sentence))
    if not found["ours"]:
        shown.append(
            (
                "alarm",
                "The process that serves this page is not the proxy of the run that lies here now: the "
                "directory was replaced. Restart andrea-proxy.",
            )
        )
    if presence.alive and (audit := found["audit"]) and audit["alarm"]:
        shown.append(("alarm", f"Collapse: the samples at step {audit['step']:,} run in circles."))
    quiet, last = found["quiet_seconds"], found["step_seconds"]
    if presence.state == "running" and quiet is not None and quiet > max(QUIET_SECONDS, QUIET_STEPS * (last or 0.0)):
        took = f", the last took {last:.3g} s" if last is not None else ""
        shown.append(("warning", f"No step for {quiet / 60:.0f} min{took}."))
    if presence.alive and (disk := found["disk"]) and disk["days"] is not None and disk["days"] < FEW_DAYS:
        shown.append(("warning", f"The disk is full in {disk['days']:.1f} days."))
    if "fallback" in found["flags"]:
        shown.append(("warning", "The trainer goes on without a plan: it fell back to the last shares."))
    warnings = found["warnings"][:FEW_WARNINGS] if presence.alive else []
    return shown + [("warning", f"Step {one['step']}: {one['what']}: {one['detail']}") for one in warnings]


def checkpoints(run: RunDir, past: Past) -> list[Figures]:
    """Every checkpoint file there is, newest first: on disk, kept for ever, archived by a pivot, or set aside."""
    found: dict[int, Figures] = {}
    with os.scandir(run.root) as entries:
        plain = [Path(entry.path) for entry in entries if entry.name.startswith("step_")]
    places = {"disk": plain, "kept": _inside(run.kept), "archived": sorted(run.archive.glob("step_*/step_*.bin"))}
    for place, paths in places.items():
        for path in paths:
            name, dot, aside = path.name.partition(".bin")
            step = checkpoint_step(name + dot)
            if step is None:
                continue
            try:
                stat = path.stat()
            except OSError:  # pruned since
                continue
            row = found.setdefault(step, {"step": step, "bytes": stat.st_size, "time": stat.st_mtime, "places": []})
            row["places"].append("bad" if aside else place)
    for step, row in found.items():
        probe, audit = past.probes.get(step), past.audits.get(step)
        row["mean"] = probe["mean"] if probe else None
        row["score"] = audit["score"] if audit else None
    return [found[step] for step in sorted(found, reverse=True)]


def retired(run: RunDir) -> list[Figures]:
    """Arms that are no longer pulled, `arm` and `why`; none where no state can be read."""
    try:
        listed = (sidecars.load(run.state) or {})["retired"]
        return [{"arm": str(row["arm"]), "why": _why_retired(row)} for row in listed]
    except (OSError, sidecars.Unusable, KeyError, TypeError):
        return []


def _why_retired(row: Figures) -> str:
    if "after" in row:
        return f"dropped by the pivot after step {row['after']:,}"
    return "found in a state of another life, never pulled here"


def origin(run: RunDir) -> Figures | None:
    """`lineage.json`; None for a run that began from nothing. One that cannot be read hides nothing else."""
    try:
        return lineage.read(run)
    except Fault as fault:
        return {"made_by": fault.what, "file": str(run.lineage), "step": 0}


def _space(folder: Path) -> tuple[int, int]:
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


def _growth(run: RunDir, settings: config.RunConfig, step: int) -> float:
    """Bytes a step that stay for ever: history as it has grown so far, and the checkpoints of `keep_every`."""
    paths = [run.loss, run.plan, *_inside(run.events)]
    history = sum(path.stat().st_size for path in paths if path.exists())
    return history / max(step, 1) + file_size(settings.shape.n_params) / settings.checkpoint.keep_every_steps


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _memory(pid: object) -> int | None:
    """Bytes of memory that the process holds; None where that is not shown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), None)


def _newest(events: dict[int, Figures], *names: str) -> Figures | None:
    return {name: events[max(events)].get(name) for name in names} if events else None


def _warning(event: Figures) -> Figures:
    return {name: event.get(name) for name in ("step", "time", "what", "detail")}


def stamp(seconds: float) -> str:
    """UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
