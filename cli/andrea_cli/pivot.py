"""Go over to another policy at the next boundary: the same weights, nothing paused, a curriculum that begins anew.

Takes a whole policy (--policy), or other limits for the one in force (--cap, --floor). All of it is checked before
anything is written, and --dry-run ends there, with limits and shares before and after. Otherwise the trainer is asked
for a checkpoint (SIGUSR1), andrea-proxy for the pivot, and it is waited for; Ctrl-C ends the waiting, not the pivot.
--abort takes back a request that andrea-proxy has not claimed. Exits 0 when the policy is in force, and when it will be
once a service that is down runs again; 1 when the pivot was refused; 78 when the policy cannot be used or is not
prepared (nothing was changed then).
"""

from __future__ import annotations

import shlex
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from andrea_cli import facts, output
from andrea_cli.fate import Fate, Request, must_be_free, pending, save_first, under_way, undo
from andrea_cli.use import start_command
from andrea_rundir.faults import EXIT_OK, Refused, Usage
from andrea_rundir.names import RunDir, locate
from andrea_service.presence import look

if TYPE_CHECKING:
    from andrea_cli.proposal import Proposal
    from andrea_rundir.events import Tail

OWNERS = True
POLL_SECONDS = 0.2


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --policy or --cap and --floor, or --abort; --dry-run, --no-wait."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "--policy", metavar="FILE", type=Path, help="the policy to go over to; prepare its sources first"
    )
    for limit in ("cap", "floor"):
        parser.add_argument(
            f"--{limit}",
            metavar="ARM=X",
            type=_limit,
            action="append",
            default=[],
            help=f"another {limit} for an arm of the policy in force, a share of pulls; may be repeated",
        )
    parser.add_argument("--abort", action="store_true", help="undo a request that was not claimed yet")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, change nothing")
    parser.add_argument("--no-wait", action="store_true", help="ask, and do not wait until it is in force")


def _limit(text: str) -> tuple[str, float]:
    arm, equals, share = text.rpartition("=")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not (arm and equals and 0 <= value <= 1):
        raise ArgumentTypeError(f"{text!r} is not ARM=X with X from 0 to 1")
    return arm, value


def run(args: Namespace) -> int:
    """Check, ask, wait, print."""
    directory = locate(args.run)
    facts.settings(directory)
    limits = bool(args.cap or args.floor)
    if [args.policy is not None, limits, args.abort].count(True) != 1 or (args.abort and args.dry_run):
        raise Usage("what should change?", expected="--policy FILE, or --cap and --floor, or --abort alone")
    return _abort(args, directory) if args.abort else _pivot(args, directory)


def _abort(args: Namespace, run: RunDir) -> int:
    from andrea_cli.proposal import in_force
    from andrea_rundir import config

    if not undo(run):
        if (text := pending(run)) is None:
            raise Refused("there is no request to undo", where=str(run.policy_next), found="no such file")
        now, _ = in_force(run, config.load(run.run_toml))
        raise under_way(run, now, text, "too late: the pivot is claimed", "wait for it, then pivot back")
    output.show(args, {"run": str(run.root), "state": "undone"}, ["undone: the policy in force stays"])
    return EXIT_OK


def _pivot(args: Namespace, run: RunDir) -> int:
    from andrea_cli.proposal import Wish, in_force, propose
    from andrea_rundir import config

    settings = config.load(run.run_toml)
    now, policies = in_force(run, settings)
    must_be_free(run, now)
    proposal = propose(run, settings, now, policies, Wish(args.policy, dict(args.cap), dict(args.floor)))
    trainer = look(run)
    if trainer.state == "finished":
        raise Refused(
            "the run is over", where=str(run.root), found=trainer.sentence, todo="fork it with another policy"
        )
    if args.dry_run:
        output.show(args, _facts(run, "dry run", proposal, proposal.step, ""), _table(proposal))
        return EXIT_OK
    if not args.json:
        print("\n".join(_table(proposal)), flush=True)
    tail, request = facts.tail(run), Request(run, settings, proposal)
    if trainer.alive:
        save_first(run)
    try:
        request.write()
        fate = request.look() if args.no_wait else _wait(run, request, proposal.step, tail)
    except KeyboardInterrupt:
        print(f"\nandrea: {_stands(run, request.look())}", file=sys.stderr)
        raise
    output.show(args, _facts(run, fate.state, proposal, fate.step, fate.policy), _outcome(run, fate))
    return EXIT_OK


def _wait(run: RunDir, request: Request, step: int, tail: Tail) -> Fate:
    """Until the policy that was asked for after `step` is in force, or a service that is needed does not run; Refused
    when it will not be."""
    progress = _Progress()
    progress.tell(Fate("asked", step))
    while True:
        trainer, proxy = look(run), look(run, "proxy")
        fate = request.look()  # after the look at the services: their last words are not missed
        progress.tell(fate)
        for event in tail.poll():
            progress.hear(event)
        if fate.state == "refused":
            raise Refused("andrea-proxy refused the pivot: nothing was changed", where=str(run.root), found=fate.reason)
        if fate.state == "undone":
            raise Refused("the request is gone: somebody took it back", where=str(run.policy_next))
        if trainer.state == "finished" and fate.state != "in force":
            raise Refused("the run ended before the pivot", where=str(run.root), found=trainer.sentence)
        if fate.state == "in force" or not proxy.alive or not (trainer.alive or fate.state == "asked"):
            progress.end()
            return fate
        progress.show(fate)
        time.sleep(POLL_SECONDS)


class _Progress:
    """Says on stderr what is waited for: a line when that changes; on a terminal, the step as well."""

    def __init__(self) -> None:
        self._told: Fate | None = None
        self._step: object = None
        self._live = sys.stderr.isatty()

    def hear(self, event: facts.Event) -> None:
        """What happens meanwhile."""
        if event["event"] == "step":
            self._step = event["step"]
        elif event["event"] == "warning":
            self._say(f"{event.get('what')}: {event.get('detail')}")
        elif event["event"] == "checkpoint":
            self._say(f"{event.get('file')} is saved")

    def tell(self, fate: Fate) -> None:
        """How far the request is. What is in force was planned first, though a look may have come too late for that."""
        if fate.state == "in force":
            fate = replace(fate, state="planned")
        if fate != self._told and fate.state in ("asked", "claimed", "planned"):
            self._told = fate
            self._say(f"{fate.state}: takes effect after step {fate.step:,}")

    def show(self, fate: Fate) -> None:
        """On a terminal, how far the trainer is."""
        if self._live and self._step is not None:
            print(f"\r\x1b[Kstep {self._step:,} of {fate.step:,}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the terminal's line."""
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        self.end()
        print(f"andrea: {text}", file=sys.stderr, flush=True)


def _facts(run: RunDir, state: str, proposal: Proposal, step: int, policy: str) -> dict[str, object]:
    return {
        "run": str(run.root),
        "state": state,
        "step": step,
        "policy": policy or None,
        "before": proposal.before.id,
        "archive": str(run.archived(step)) if state == "in force" else None,
        "train": look(run).sentence,
        "proxy": look(run, "proxy").sentence,
        "arms": [asdict(row) for row in proposal.rows],
    }


def _outcome(run: RunDir, fate: Fate) -> list[str]:
    """How it ended, or what it now depends on."""
    if fate.state == "in force":
        return [
            f"policy {fate.policy} is in force since step {fate.step + 1:,}",
            f"what the one before left: {run.archived(fate.step)}",
        ]
    trainer, proxy = look(run), look(run, "proxy")
    lines = [_stands(run, fate)]
    if not proxy.alive and fate.state == "planned":
        lines.append(f"{proxy.sentence} When it runs again, it archives what the policy before left.")
    elif not proxy.alive:
        lines.append(f"{proxy.sentence} The pivot waits for it.")
    if not trainer.alive:
        lines.append(f"{trainer.sentence} Start it: {start_command(run.root)}")
    return lines


def _stands(run: RunDir, fate: Fate) -> str:
    """What happens if nothing more is done."""
    if fate.state == "asked":
        undoing = f"andrea pivot {shlex.quote(str(run.root))} --abort"
        return f"the request stands: it takes effect after step {fate.step:,} or later; to undo it: {undoing}"
    if fate.state in ("claimed", "planned"):
        return f"the pivot is claimed and can no longer be undone: it takes effect after step {fate.step:,}"
    return f"the pivot is {fate.state} {fate.policy or fate.reason}".rstrip()


def _table(proposal: Proposal) -> list[str]:
    """Limits and shares of pulls, before and after, an arm a line."""
    before, after = proposal.before, proposal.after
    rows = [
        (
            row.arm,
            row.source,
            *map(_change, (row.floor, row.cap, row.share), (row.new_floor, row.new_cap, row.new_share)),
        )
        for row in proposal.rows
    ]
    rows.insert(0, ("arm", "text", "floor", "cap", "share"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    learners = dict.fromkeys((before.rules.learner, after.rules.learner))
    return [
        f"policy {before.id} ends with step {proposal.step:,}; the learner ({' -> '.join(learners)}) begins anew",
        *("  ".join(f"{cell:<{wide}}" for cell, wide in zip(row, widths, strict=True)).rstrip() for row in rows),
    ]


def _change(before: float | None, after: float | None) -> str:
    return " -> ".join(f"{'-' if share is None else f'{share:.1%}':>6}" for share in (before, after))
