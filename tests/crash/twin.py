"""Real processes go on from what a power cut left, and end where the run ended that met with none."""

from __future__ import annotations

import json
from pathlib import Path

from andrea_rundir.entries import read
from andrea_rundir.names import RunDir
from crash.disk import Tree
from crash.readers import key, lay
from crash.scenario import LAST, PIVOT, RUN
from crash.truth import Truth, timeless
from harness import start, start_proxy, until


def different(tree: Tree, folder: Path, truth: Truth) -> list[str]:
    """How the end differs. Where the other policy was not planned with yet, the run is followed up to the pivot only:
    the request itself may have been lost."""
    lay(tree, folder)
    run = RunDir(folder / RUN)
    pivoted = f'"policy":"{PIVOT}-'.encode() in (tree.get(f"{RUN}/plan.jsonl") or b"")
    last = LAST if pivoted else PIVOT
    with start_proxy(run) as proxy, start(run, "--until-step", str(last)) as trainer:
        if trainer.wait() != 0:
            return [f"the trainer ends with {trainer.process.returncode}: {trainer.said()}"]
        until("all is recorded", lambda: max((entry["step"] for entry in read(run.loss)), default=0) >= last)
        until("the pivot is finished", lambda: not (pivoted and run.policy_pending.exists()))
        assert proxy.stop() == 0, proxy.said()
    found = []
    if run.checkpoint(last).read_bytes() != truth.checkpoints[last]:
        found.append(f"{run.checkpoint(last).name} differs")
    entries = [timeless(entry) for entry in json.loads(run.loss.read_bytes())]
    if entries != [truth.entries[step] for step in range(1, last + 1)]:
        found.append("the history differs")
    theirs = {key(plan): plan for plan in map(json.loads, truth.plan_lines)}
    for line in run.plan.read_bytes().splitlines():
        plan = json.loads(line)
        if plan["last"] <= last and plan["steps"] != theirs[key(plan)]["steps"]:
            found.append(f"round {plan['round']} differs")
    return found
