"""Prove that what a run has on disk is whole and belongs together; whatever is not is named, with what to do about it.

Every checkpoint, those in kept/ and archive/ too: header, size, digest line, finite values, and that this run saved it.
The history: `.loss.json` without a gap, over pivots and forks, one entry an attempt, equal to the events. The
curriculum: plan readable, `.state.json` the fold of the history. Token shards are left to the trainer, which checks
them at each start. Reads everything once, changes nothing, and works beside a running trainer and proxy. Exits 0 when
all is sound; 1 when not; 78 when run.toml cannot be used.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from andrea_cli import facts, output, verify_history, verify_state
from andrea_cli.redraw import CLEAR_LINE
from andrea_cli.soundness import Section, lasting
from andrea_cli.verify_checkpoints import Checkpoints
from andrea_rundir import config
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED
from andrea_rundir.lock import probe
from andrea_rundir.names import RunDir, locate


def add_arguments(parser: ArgumentParser) -> None:
    """RUN."""
    parser.add_argument("run", metavar="RUN")


def run(args: Namespace) -> int:
    """Check everything, print what was checked and what was found."""
    directory = locate(args.run)
    facts.settings(directory)
    sections = verify(directory, _telling())
    findings = [finding for section in sections for finding in section.findings]
    more = sum(section.more for section in sections)
    found = {
        "run": str(directory.root),
        "sound": not findings,
        "checked": {section.name: section.to_json() for section in sections},
        "findings": [output.described(finding) for finding in findings],
        "more_findings": more,
    }
    lines = [f"{section.name:<13}{section.says}" for section in sections]
    lines += [f"{'note':<13}{note}" for section in sections for note in section.notes]
    for finding in findings:
        what, *rest = finding.lines()
        lines += ["", f"FOUND: {what}", *(f"  {line}" for line in rest)]
    lines += ["", f"and {more:,} more of these"] if more else []
    lines += ["", "NOT SOUND"] if findings else ["sound"]
    output.show(args, found, lines)
    return EXIT_REFUSED if findings else EXIT_OK


def verify(run: RunDir, say: Callable[[str], None]) -> list[Section]:
    """All sections; BadConfig when run.toml cannot be used. `say` is told what is being read."""
    settings = config.load(run.run_toml)
    checkpoints = Checkpoints(run, settings.shape.n_params, say)

    def busy() -> bool:
        return probe(run.train_lock).held or probe(run.proxy_lock).held

    sections = [lasting(checkpoints.check, busy)]
    say(f"reads {run.loss} and {run.events}")
    sections.append(lasting(lambda: verify_history.check(run), busy))
    say("folds the history anew")
    sections.append(lasting(lambda: verify_state.check(run, settings), busy))
    say("")
    return sections


def _telling() -> Callable[[str], None]:
    """Says in one line of a terminal what is under way; silent elsewhere."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r{text}{CLEAR_LINE}", end="\r" if not text else "", file=sys.stderr, flush=True)
