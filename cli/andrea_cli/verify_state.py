"""The curriculum's files: every line of the plan readable, `.state.json` and its archived ones the fold of history.

Writes nothing. Imports `andrea_proxy` for the fold, so that there is one.
"""

from __future__ import annotations

from andrea_cli.soundness import Section
from andrea_proxy import rebuild
from andrea_rundir import planfile, sidecars
from andrea_rundir.config import RunConfig
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir, checkpoint_step

SHOWN = 10
"""Figures that are named where a state differs."""


def check(run: RunDir, settings: RunConfig) -> Section:
    """The plan first: without it nothing says what the policies are."""
    section = Section("curriculum")
    lines, folded = _plan(run, section), 0
    if not section.findings:
        try:
            folded = sum(_archived(run, settings, step, section) for step in _pivots(run))
            _state(run, settings, section)
        except BadConfig as why:
            section.find(why.what, why.where, why.found, why.expected, why.todo)
        except (KeyError, TypeError) as why:  # entries that are none
            section.find("the history cannot be folded", run.loss, found=repr(why))
    says = f"{lines:,} lines of the plan"
    if not section.findings and run.state.exists():
        says += f"; .state.json{f', {folded:,} archived' if folded else ''}: the fold of history"
    section.say(says)
    return section


def _plan(run: RunDir, section: Section) -> int:
    count = 0
    try:
        for _ in planfile.read(run.plan):
            count += 1
    except FileNotFoundError:
        section.notes.append("there is no plan.jsonl: andrea-proxy has not planned anything")
        return 0
    except ValueError as error:
        section.find(
            "the plan cannot be read",
            f"{run.plan}: line {count + 1}",
            found=str(error),
            todo="restart andrea-proxy: it sets the file aside and carries the good lines over",
        )
    section.read(run.plan)
    return count


def _pivots(run: RunDir) -> list[int]:
    """The steps that have an archive."""
    steps = (checkpoint_step(f"{path.name}.bin") for path in run.archive.glob("step_*"))
    return sorted(step for step in steps if step is not None)


def _archived(run: RunDir, settings: RunConfig, step: int, section: Section) -> bool:
    """Whether the state of the policy that ended with `step` has been looked at."""
    folder = run.archived(step)
    if not (folder / "policy.toml").exists():
        section.notes.append(f"{folder.relative_to(run.root)} is not complete: andrea-proxy finishes it")
        return False
    path = folder / run.state.name
    try:
        if differences := rebuild.archived(run, settings, step):
            section.find(
                "an archived state is not the fold of the history up to it",
                path,
                found=_named(differences),
                todo="bring the folder back from a copy; nothing needs it to go on",
            )
    except sidecars.Unusable as why:
        section.find("an archived state cannot be used", path, found=str(why))
    section.read(path)
    return True


def _state(run: RunDir, settings: RunConfig, section: Section) -> None:
    if not run.state.exists():
        section.notes.append("there is no .state.json: andrea-proxy makes it when it starts")
        return
    todo = "`andrea rebuild-state RUN` makes it anew"
    found = rebuild.rebuild(run, settings)
    if found.problem:
        section.find("the curriculum's state cannot be used", run.state, found=found.problem, todo=todo)
    elif found.differences:
        differences = _named(found.differences)
        section.find("the curriculum's state is not the fold of history", run.state, found=differences, todo=todo)
    section.read(run.state)


def _named(differences: list[str]) -> str:
    more = len(differences) - SHOWN
    return ", ".join(differences[:SHOWN]) + (f" and {more} more" if more > 0 else "") + " differ"
