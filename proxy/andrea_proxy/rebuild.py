"""The state, folded anew from `.loss.json` and `plan.jsonl` alone, and how it differs from the one on disk.

Reads only, so that it can be done beside a proxy at work; `write` is for when there is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from andrea_proxy import state
from andrea_proxy.past import new_fold, refold
from andrea_proxy.policies import Policies
from andrea_rundir import entries, lossfile, sidecars
from andrea_rundir.config import RunConfig
from andrea_rundir.entries import Entry
from andrea_rundir.lossfile import LossFile
from andrea_rundir.names import RunDir

_PLACES = ("history", "events")
"""Where the file stands in history; not folded, but what is folded up to there must be equal."""


@dataclass(frozen=True)
class Rebuilt:
    """The content as it should be; where the file differs ("arms.prose.share"), or why it cannot be used at all."""

    content: dict[str, Any]
    entries: int
    differences: list[str]
    problem: str


def rebuild(run: RunDir, config: RunConfig) -> Rebuilt:
    """Fold as much of history as the file says it covers, all of it where it says nothing; compare.

    BadConfig when nothing says what a policy of the history is.
    """
    try:
        found, problem = sidecars.load(run.state), ""
        if found is None:
            problem = "there is no .state.json"
    except sidecars.Unusable as why:
        found, problem = None, str(why)
    recorded = list(islice(entries.read(run.loss), _covered(found)))
    content = _folded(run, config, recorded, None, found)
    if found is None:
        return Rebuilt(content, len(recorded), [], problem)
    kept = {name: value for name, value in found.items() if name not in _PLACES}
    differences = _differences(kept, content)
    mark = state.vouched(found)
    if mark is None or lossfile.digest(run.loss, mark.size) != mark.digest:
        differences.append("history.digest")
    return Rebuilt(content, len(recorded), differences, "")


def archived(run: RunDir, config: RunConfig, step: int) -> list[str]:
    """Where `archive/step_S/.state.json` differs from the fold of everything up to S. Unusable, BadConfig."""
    found = sidecars.load(run.archived(step) / run.state.name)
    if found is None:
        raise sidecars.Unusable(f"there is no {run.state.name}")
    return _differences(found, _folded(run, config, entries.read(run.loss), step, found))


def write(run: RunDir, config: RunConfig) -> None:
    """Fold all of the history and put that in place; the proxy's lock must be held. What was there stands aside as
    `.state.json.bad`. OSError, BadConfig: nothing was put there.
    """
    try:
        found = sidecars.load(run.state)
    except sidecars.Unusable:
        found = None
    loss = LossFile(run.loss)
    try:
        content = _folded(run, config, loss.since(0), None, found)
        if run.state.exists():
            sidecars.set_aside(run.state, sidecars.Unusable(""))
        state.save(run, content, loss, (0, 0))
    finally:
        loss.close()


def _folded(
    run: RunDir, config: RunConfig, recorded: Iterable[Entry], until: int | None, found: dict[str, Any] | None
) -> dict[str, Any]:
    """The content that the entries up to a step give; what `found` lists as retired for want of a pivot stays."""
    policies = Policies(run, context=config.shape.context, round_steps=config.round_steps)
    fold = refold(recorded, new_fold(run, config, policies), until)
    plan = state.line_of(run, fold.step, config.round_steps)
    retired = [arm for arm in (found or {}).get("retired", []) if "after" not in arm]
    made = state.render(run, config.run.id, fold, plan, config.optimizer.batch_size, retired)
    content: dict[str, Any] = json.loads(json.dumps(made))
    return content


def _covered(found: dict[str, Any] | None) -> int | None:
    count = _history(found or {}).get("entries")
    return count if isinstance(count, int) else None


def _history(found: dict[str, Any]) -> dict[str, Any]:
    """What the file says it was folded from."""
    history = found.get("history")
    return history if isinstance(history, dict) else {}


def _differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Dotted names of everything that two JSON values do not have in common."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({*one, *other})
        return [d for name in names for d in _differences(one.get(name), other.get(name), f"{where}.{name}")]
    return [] if one == other else [where.lstrip(".")]
