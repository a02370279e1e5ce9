"""A branch of a run: all that stands before one of its checkpoints, in a directory of its own.

Promises that the parent is only read, that a parent at work may prune, plan and pivot meanwhile, and that what the
branch has of its history is the parent's byte for byte. Writes into the directory it is given, which has no other
writer yet. Imports `andrea_rundir`, `andrea_corpus` and, for what a pivot does, `andrea_proxy`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from andrea_cli.source import copy
from andrea_corpus.ledger import fingerprints, record
from andrea_corpus.rounds import Standing, lay_out, pulled
from andrea_proxy.policies import Policies
from andrea_rundir import lossfile, planfile, policy
from andrea_rundir.config import RunConfig
from andrea_rundir.excerpt import Origins, excerpt
from andrea_rundir.faults import BadConfig, Refused
from andrea_rundir.names import RunDir
from andrea_rundir.plan import round_of, round_steps
from andrea_rundir.planfile import Line, PlanFile
from andrea_rundir.publish import publish


def write_history(parent: RunDir, branch: RunDir, history: Origins) -> None:
    """Events, plan lines and entries that belong to the checkpoint."""
    branch.events.mkdir(mode=0o750)
    for name, content in excerpt(parent.events, history):
        publish(branch.events / name, content)
    if plan := planfile.excerpt(parent.plan, history.step):
        publish(branch.plan, plan)
    if parent.loss.exists():
        publish(branch.loss, lossfile.excerpt(parent.loss, history.has_entry))


def link_shards(parent: RunDir, branch: RunDir) -> None:
    """Every whole shard, the list of them and the tokenizer. Shards never change, so both runs may have one file."""
    branch.data.mkdir(mode=0o750)
    for path in sorted(parent.data.glob("*.json")):
        content = path.read_bytes()  # before its parts: a shard is there when its JSON is
        for part in ("train", "held"):
            tokens = path.with_name(f"{path.stem}.{part}.bin")
            if tokens.exists():
                _link(tokens, branch.data / tokens.name)
        publish(branch.data / path.name, content)


@dataclass(frozen=True)
class Recipe:
    """A policy in force: id, text, fingerprint of each arm. `id` is None where no step was trained under it."""

    id: str | None
    text: str
    arms: Mapping[str, str]


def in_force(parent: RunDir, history: Origins) -> Recipe:
    """The policy that the step of the checkpoint was trained under; before the first step, the one it begins with."""
    known = {line.plan.policy: (line.policy_text or "", line.plan.arms) for line in planfile.first_lines(parent.plan)}
    for name, begun in history.policies.items():
        known.setdefault(name, (begun["text"], begun["arms"]))
    if history.last:
        name = next(reversed(history.last))
        if name not in known:
            raise BadConfig(
                f"the policy {name}, in force at this checkpoint, is nowhere to be found",
                where=str(parent.plan),
                expected="the first line of that policy",
                todo="bring plan.jsonl back from a copy",
            )
        return Recipe(name, *known[name])
    if known:
        return Recipe(None, *next(iter(known.values())))
    rules = policy.load(parent.policy_toml)
    return Recipe(None, parent.policy_toml.read_text(encoding="utf-8"), fingerprints(parent, rules))


def write_policy(branch: RunDir, root: Path, recipe: Recipe) -> None:
    """Make it the branch's own; `root` is where the branch will be: relative sources start there."""
    publish(branch.policy_toml, recipe.text.encode())
    rules = policy.parse(recipe.text, str(branch.policy_toml), root)
    record(branch, rules, recipe.arms)


def begin_policy(branch: RunDir, settings: RunConfig, history: Origins, old: Recipe, text: str) -> str:
    """Lay out the first round of another policy, in force from the next step on, as a pivot does; its id.

    Cursors run on by fingerprint, those of dropped arms included; the first two rounds follow the priors.
    """
    step, size = history.step, settings.round_steps
    if history.snapshot is None:
        raise Refused(
            "no events speak of this checkpoint: where its sources stand is not known", where=str(branch.root)
        )
    policies = Policies(branch, context=settings.shape.context, round_steps=size)
    for name, begun in history.policies.items():
        policies.learn(name, begun["text"], begun["arms"])
    lifetime: dict[str, int] = {}
    for name, event in history.last.items():
        lifetime |= pulled(policies.of(name).arms, event["cursors"])
    here = Standing(step, old.id or "", old.arms, history.snapshot["cursors"], history.snapshot["credits"])
    regime = policies.prepared(text, "--policy", step)
    number = round_of(step + 1, size)
    laid = lay_out(
        regime,
        here.fresh(regime, lifetime),
        number,
        round_steps(number, size)[1],
        batch_size=settings.optimizer.batch_size,
    )
    if laid is None:
        raise Refused("all arms of this policy are used up at this step", where="--policy")
    plan = PlanFile(branch.plan)
    plan.append([Line(laid.plan, scaled=laid.scaled, policy_text=text)])
    plan.close()
    return regime.id


def _link(path: Path, target: Path) -> None:
    """A hard link; a copy where there can be none."""
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            copy(fd, target)
        finally:
            os.close(fd)
