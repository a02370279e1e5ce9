"""List the runs of the state directory: state, step, smoothed loss, time left, newest checkpoint; which one is served.

Each figure is that of `andrea status`, read from the ends of files: as fast for long histories as for short ones. Reads
only. Exits 0, also when there is none.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from andrea_cli import facts, output
from andrea_cli.use import CONF, chosen
from andrea_cli.vitals import newest_checkpoint, vitals
from andrea_rundir.faults import EXIT_OK, BadConfig, Refused
from andrea_rundir.names import RunDir, state_directory
from andrea_service.presence import look

LOOK_BACK = 300
"""Events read of each run: enough for a speed over facts.RECENT_STEPS."""
COLUMNS = ("  run", "state", "step", "loss", "time left", "checkpoint")


def add_arguments(parser: ArgumentParser) -> None:
    """None."""


def run(args: Namespace) -> int:
    """Print a line a run."""
    state, now = state_directory(), time.time()
    runs = [one for run in found(state) if (one := about(run, now)) is not None]
    in_use = chosen(CONF)
    for one in runs:
        one["chosen"] = one["name"] == in_use
    output.show(args, {"state_directory": str(state), "runs": runs}, _lines(state, runs))
    return EXIT_OK


def found(state: Path) -> list[RunDir]:
    """The runs right under a directory, by name; Refused when it cannot be read."""
    if not state.is_dir():
        return []
    try:
        return [RunDir(path) for path in sorted(state.iterdir()) if _is_run(path)]
    except PermissionError:
        raise Refused(
            "the state directory cannot be read",
            where=str(state),
            expected="a member of its group",
            todo=f"join the group: usermod -aG {state.group()} USER, and log in again",
        ) from None


def _is_run(path: Path) -> bool:
    if path.name.startswith("."):  # one that is being made
        return False
    try:
        return (path / "run.toml").exists()
    except PermissionError:  # somebody else's folder: lost+found, say
        return False


def about(run: RunDir, now: float) -> dict[str, Any] | None:
    """What is shown of a run; a run.toml that cannot be read leaves its figures out. None for one that was removed."""
    try:
        presence = look(run)
        recent, newest = facts.recent(run, LOOK_BACK), newest_checkpoint(run, verify=False, now=now)
        tables = facts.settings(run)
    except Refused:
        return None
    except (OSError, BadConfig):
        recent, newest, tables = facts.Recent(), None, {}
    return {
        "name": run.root.name,
        "run": str(run.root),
        "state": presence.state,
        "sentence": presence.sentence,
        **vitals(run, presence, tables, recent, now),
        "checkpoint": newest,
    }


def _lines(state: Path, runs: list[dict[str, Any]]) -> list[str]:
    if not runs:
        return [f"no runs in {state}; `andrea init RUN` makes one"]
    rows = [COLUMNS, *(_row(one) for one in runs)]
    wide = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = ["  ".join(f"{cell:<{wide[i]}}" for i, cell in enumerate(row)).rstrip() for row in rows]
    return lines + (["* what andrea-train.service trains"] if any(one["chosen"] for one in runs) else [])


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    total, checkpoint = one["max_steps"], one["checkpoint"]
    step = "-" if one["step"] is None else f"{one['step']:,}"
    return (
        f"{'*' if one['chosen'] else ' '} {one['name']}",
        one["state"],
        step if total is None else f"{step} of {total:,}",
        "-" if one["ema"] is None else f"{one['ema']:.4f}",
        "-" if one["eta_seconds"] is None else output.span(one["eta_seconds"]),
        "none" if checkpoint is None else f"{checkpoint['step']:,}, {output.span(checkpoint['age_seconds'])} ago",
    )
