"""Stop a training run: it finishes its step, publishes a checkpoint and ends; wait for that and say how to go on.

Exits 0 when it has stopped, also when it was not running; 1 when it may not be signalled, ended in another way, or
is still at work when the time is up.
"""

from __future__ import annotations

import signal
import time
from argparse import ArgumentParser, Namespace

from andrea_cli import facts, output, service
from andrea_cli.arguments import seconds
from andrea_cli.use import start_command
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.lock import probe
from andrea_rundir.names import RunDir, locate
from andrea_service import identity
from andrea_service.presence import Presence, look

OWNERS = True
POLL_SECONDS = 0.1


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --timeout."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=600.0, help="wait at most so long (default 600)"
    )


def run(args: Namespace) -> int:
    """Stop it, print the last checkpoint and how to start again."""
    directory = locate(args.run)
    facts.settings(directory)
    before = look(directory)
    if before.state in ("foreign", "unknown"):
        raise Refused("not stopped", where=str(directory.root), found=before.sentence)
    again = _start_again(directory, before)
    after = _stop(directory, args.timeout) if before.alive else before
    steps = directory.checkpoints()
    last = str(steps[max(steps)]) if steps else None
    shown = [after.sentence, f"last checkpoint: {last or 'none'}"]
    if after.state != "finished":
        shown.append(f"start again: {again}")
    output.show(
        args,
        {"state": after.state, "sentence": after.sentence, "checkpoint": last, "start": again},
        shown,
    )
    return EXIT_OK


def _stop(run: RunDir, timeout: float) -> Presence:
    """Send SIGTERM and wait until the lock is free; Refused when it ends in another way, or not in time."""
    pid = identity.send(run, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while probe(run.train_lock).held:
        if time.monotonic() > deadline:
            raise Refused(
                f"pid {pid} has not ended within {output.span(timeout)}",
                where=str(run.root),
                expected="the end of a step and one checkpoint",
                todo="it was told to stop and may still do so: look at `andrea status` and at the journal",
            )
        time.sleep(POLL_SECONDS)
    after = look(run)
    if after.state not in ("stopped", "finished"):
        raise Refused("it ended, but not as asked", where=str(run.root), found=after.sentence)
    return after


def _start_again(run: RunDir, before: Presence) -> str:
    """What starts the run as it was started; `before` is what was known of it while it lived."""
    pid = before.identity.get("pid") if before.alive and before.identity else None
    unit = service.unit_of(pid) if isinstance(pid, int) else None
    return start_command(run.root) if unit is None else f"systemctl start {unit.removesuffix('.service')}"
