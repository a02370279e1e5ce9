"""A branch of a run: all that stands before one of its checkpoints, in a directory of its own.

Promises that the parent is only read, that a parent at work may prune, plan and pivot meanwhile, and that what the
branch has of its history is the parent's byte for byte. Writes into the directory it is given, which has no other
writer yet. Imports `andrea_rundir`, `andrea_corpus` and, for what a pivot does, `andrea_proxy`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from andrea_cli.source import copy
from andrea_corpus.ledger import record
from andrea_corpus.rounds import Regime, Standing, lay_out, pulled
from andrea_proxy.policies import Policies
from andrea_rundir import entries, planfile, policy, tomlfile
from andrea_rundir.config import RunConfig
from andrea_rundir.excerpt import Origins, excerpt
from andrea_rundir.faults import Refused
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
        publish(branch.loss, entries.excerpt(parent.loss, history.has_entry))


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


def policies_of(run: RunDir, settings: RunConfig, history: Origins) -> Policies:
    """All policies that the history of a run speaks of."""
    found = Policies(run, context=settings.shape.context, round_steps=settings.round_steps)
    for name, begun in history.policies.items():
        found.learn(name, begun["text"], begun["arms"])
    return found


def in_force(parent: RunDir, settings: RunConfig, history: Origins) -> Regime:
    """The policy that the step of the checkpoint was trained under; before the first step, the one it begins with."""
    known = policies_of(parent, settings, history)
    if history.last:
        return known.of(next(reversed(history.last)))
    first = [line.plan.policy for line in planfile.first_lines(parent.plan)] or list(history.policies)
    if first:
        return known.of(first[0])
    return known.prepared(tomlfile.read(parent.policy_toml), str(parent.policy_toml), 0)


def write_policy(branch: RunDir, root: Path, text: str, arms: Mapping[str, str]) -> None:
    """Give it a policy and its shards; `root` is where the branch will be: relative sources start there."""
    publish(branch.policy_toml, text.encode())
    record(branch, policy.parse(text, str(branch.policy_toml), root), arms)


def begin_policy(branch: RunDir, settings: RunConfig, history: Origins, text: str) -> Regime:
    """Lay out the first round of another policy, in force from the next step on, as a pivot does.

    Cursors run on by fingerprint, those of dropped arms included; the first two rounds follow the priors.
    """
    if history.snapshot is None:
        what = "no events speak of this checkpoint: where its sources stand is not known"
        raise Refused(what, where=str(branch.checkpoint(history.step)), todo="fork without --policy, then andrea pivot")
    known, lifetime = policies_of(branch, settings, history), dict[str, int]()
    for name, event in history.last.items():
        lifetime |= pulled(known.of(name).arms, event["cursors"])
    old, new = known.of(next(reversed(history.last))), known.prepared(text, "--policy", history.step)
    here = Standing(history.step, old.id, old.arms, history.snapshot["cursors"], history.snapshot["credits"])
    number = round_of(history.step + 1, settings.round_steps)
    last, batch_size = round_steps(number, settings.round_steps)[1], settings.optimizer.batch_size
    laid = lay_out(new, here.fresh(new, lifetime), number, last, batch_size=batch_size)
    if laid is None:
        raise Refused("all arms of this policy are used up at this step", where="--policy")
    plan = PlanFile(branch.plan)
    plan.append([Line(laid.plan, scaled=laid.scaled, policy_text=text)])
    plan.close()
    return new


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
