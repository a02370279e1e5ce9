"""Branch off a run: a new run that goes on from one of its checkpoints, with all of its history up to there.

The checkpoint may lie in RUN, in its kept/ or in its archive/. Configuration and policy are RUN's (the policy that was
in force at that step), but for what --policy and --set change: another policy is in force from the next step on, as
after a pivot. With nothing changed the branch repeats what RUN did, byte for byte. RUN may be at work; it is only read.
Exits 0 when NEW is made; 1 when the place is taken, there is no usable checkpoint of that step or the disk is full, 78
when a key, the policy or a source cannot be used: then nothing is left.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from andrea_cli import branch, facts, lineage, output
from andrea_cli.newdir import building, vacant
from andrea_cli.prepare import prepare
from andrea_cli.settings import forked, identified, name_of, replaced
from andrea_cli.source import Source, Verified, copied, opened, verified
from andrea_cli.stock import nearest, stock
from andrea_cli.use import start_command
from andrea_corpus.ledger import fingerprints
from andrea_rundir import config, policy
from andrea_rundir.config import differences
from andrea_rundir.faults import EXIT_OK, BadConfig, Refused
from andrea_rundir.names import RunDir, locate
from andrea_rundir.publish import publish
from andrea_service import owner


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, NEW, --step, --policy, --set, --dry-run."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("new", metavar="NEW", help="the run to make: a path, or a name under the state directory")
    parser.add_argument("--step", metavar="N", type=int, required=True, help="go on from the checkpoint of step N")
    parser.add_argument("--policy", metavar="FILE", type=Path, help="feed it by this policy from step N + 1 on")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="another value in run.toml: optimizer.lr=1e-4"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be made, make nothing")


@dataclass(frozen=True)
class _Wish:
    """What is to be made, and of what."""

    parent: RunDir
    before: config.RunConfig
    root: Path
    settings: config.RunConfig
    rules: policy.Policy | None


def run(args: Namespace) -> int:
    """Make it, say what it is."""
    wish = _wish(args)
    with opened(wish.parent, args.step) as source:
        if args.dry_run:
            found = verified(source, source.path, wish.before.shape.n_params)
            begun = branch.in_force(wish.parent, wish.before, found.history).id
            if wish.rules is not None:
                begun = policy.policy_id(policy.dump(wish.rules), args.step if found.history.last else 0)
        else:
            try:
                with building(wish.root) as scratch:
                    found, begun = _fill(RunDir(scratch), source, wish)
            except OSError as error:
                what = f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
                raise Refused(
                    "the fork cannot be made",
                    where=str(wish.root),
                    found=what,
                    expected="a directory that can be filled",
                    todo="make room, or name another place; nothing was left there",
                ) from None
        shown = _facts(wish, source, found, begun) | {"dry_run": args.dry_run}
    output.show(args, shown, _lines(wish, shown))
    return EXIT_OK


def _wish(args: Namespace) -> _Wish:
    parent = locate(args.run)
    facts.settings(parent)
    before = config.load(parent.run_toml)
    root = vacant(locate(args.new).root)
    if not args.dry_run:
        owner.demand(root, args.typed)
    settings = identified(forked(replaced(before, {"run.name": name_of(root)}), args.set, args.step))
    rules = None
    if args.policy is not None:
        rules = policy.load(args.policy)
        rules.check_rounds(settings.round_steps, str(args.policy))
        if over := args.step % settings.round_steps:
            first = args.step - over
            between = [step for step in stock(parent) if step % settings.round_steps == 0]
            raise Refused(
                "a policy begins with a round of the plan, and this step lies inside one",
                where=f"--step {args.step}",
                found=f"a round of steps {first + 1} to {first + settings.round_steps}",
                expected=f"a checkpoint between two rounds: {nearest(between, args.step)}",
                todo="or fork without --policy, then andrea pivot NEW --policy FILE",
            )
    return _Wish(parent, before, root, settings, rules)


def _fill(new: RunDir, source: Source, wish: _Wish) -> tuple[Verified, str]:
    """Write everything into the directory that will be renamed; the checkpoint, and the policy from there on."""
    found = copied(source, new, wish.before.shape.n_params)
    publish(new.run_toml, config.dump(wish.settings).encode())
    branch.link_shards(wish.parent, new)
    branch.write_history(wish.parent, new, found.history)
    begun = _feed(new, wish, found)
    lineage.write(
        new,
        "fork",
        run=str(wish.parent.root),
        name=wish.before.run.name,
        id=wish.before.run.id,
        step=source.step,
        n_params=wish.before.shape.n_params,
        digest=found.digest,
        changed=_changed(wish),
        policy=begun if wish.rules is not None else None,
        earlier=lineage.read(wish.parent),
    )
    return found, begun


def _feed(new: RunDir, wish: _Wish, found: Verified) -> str:
    """Give it its policy, and to another one than before its first round; the id in force from the next step on."""
    if wish.rules is None:
        old = branch.in_force(wish.parent, wish.before, found.history)
        branch.write_policy(new, wish.root, old.text, old.arms)
        return old.id
    text = policy.dump(wish.rules)
    try:
        arms = fingerprints(new, wish.rules)
    except BadConfig:
        prepare(new, wish.settings, wish.rules)
        arms = fingerprints(new, wish.rules)
    branch.write_policy(new, wish.root, text, arms)
    if not found.history.last:  # no step was taken under another one
        return policy.policy_id(text, 0)
    return branch.begin_policy(new, wish.settings, found.history, text).id


def _changed(wish: _Wish) -> dict[str, list[Any]]:
    """Old and new value of every key that --set has changed."""
    both = differences(wish.before.model_dump(mode="json"), wish.settings.model_dump(mode="json"))
    return {name: list(values) for name, values in both.items() if name not in ("run.id", "run.name")}


def _notes(wish: _Wish, found: Verified) -> list[str]:
    """What the operator should know before relying on it."""
    step, notes = found.history.step, []
    if not found.known:
        notes.append("no digest of this checkpoint is on record: it is used as it is")
    start = found.history.start
    if start is not None:
        then = differences(start["config"], wish.before.model_dump(mode="json"))
        for name, (old, new) in then.items():
            notes.append(
                f"run.toml has changed since step {step}: {name} was {old}, is {new}; --set {name}={old} takes it back"
            )
    return notes


def _facts(wish: _Wish, source: Source, found: Verified, begun: str) -> dict[str, Any]:
    return {
        "run": str(wish.root),
        "id": wish.settings.run.id,
        "name": wish.settings.run.name,
        "parent": {"run": str(wish.parent.root), "name": wish.before.run.name, "id": wish.before.run.id},
        "step": source.step,
        "checkpoint": str(source.path),
        "bytes": found.size,
        "digest": found.digest,
        "policy": begun,
        "changed": _changed(wish),
        "notes": _notes(wish, found),
    }


def _lines(wish: _Wish, shown: dict[str, Any]) -> list[str]:
    step, parent = shown["step"], shown["parent"]
    made = "would make" if shown["dry_run"] else "made"
    lines = [
        f"{made} {shown['run']}",
        f"from        step {step:,} of {parent['name']} ({parent['run']})",
        f"checkpoint  {shown['checkpoint']}, {output.size(shown['bytes'])}, verified",
    ]
    if wish.rules is not None:
        lines.append(f"policy      {shown['policy']}, from step {step + 1:,} on")
    else:
        lines.append(f"policy      {shown['policy']}, as at step {step:,}")
    lines += [f"changed     {name}: {old} -> {new}" for name, (old, new) in shown["changed"].items()]
    lines += [f"note        {note}" for note in shown["notes"]]
    if not shown["dry_run"]:
        lines.append(f"train it:   {start_command(Path(shown['run']))}")
    return lines
