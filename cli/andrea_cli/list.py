"""List the runs of the state directory: state, step, newest checkpoint, and which one the services work on.

Reads only. Exits 0, also when there is none.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from andrea_cli import output
from andrea_cli.use import CONF, chosen
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.names import RunDir, state_directory
from andrea_service.presence import look


def add_arguments(parser: ArgumentParser) -> None:
    """None."""


def run(args: Namespace) -> int:
    """Print a line a run."""
    state = state_directory()
    runs = [about(run) for run in found(state)]
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


def about(run: RunDir) -> dict[str, Any]:
    """What is known of a run without reading its history."""
    presence = look(run)
    last = presence.last_event or {}
    try:
        checkpoint = max(run.checkpoints(), default=None)
    except OSError:
        checkpoint = None
    return {
        "name": run.root.name,
        "run": str(run.root),
        "state": presence.state,
        "sentence": presence.sentence,
        "step": last.get("step"),
        "checkpoint": checkpoint,
    }


def _lines(state: Path, runs: list[dict[str, Any]]) -> list[str]:
    if not runs:
        return [f"no runs in {state}; `andrea init RUN` makes one"]
    width = max(len(one["name"]) for one in runs)
    return [
        f"{'*' if one['chosen'] else ' '} {one['name']:<{width}}  {one['state']:<8}"
        f"  step {'-' if one['step'] is None else one['step']}"
        f"  checkpoint {'none' if one['checkpoint'] is None else one['checkpoint']}"
        for one in runs
    ] + (["* what andrea-train.service trains"] if any(one["chosen"] for one in runs) else [])
