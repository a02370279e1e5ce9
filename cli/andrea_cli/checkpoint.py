"""Ask a training run for a checkpoint, wait until it is durable, print its path and digest.

It holds every step that was finished when it was asked for. Training goes on. Exits 0 when it is there; 1 when the
run does not train, when it ended first, or when the time is up (the checkpoint may still come).
"""

from __future__ import annotations

import signal
import sys
import time
from argparse import ArgumentParser, Namespace

from andrea_cli import facts, output
from andrea_cli.arguments import seconds
from andrea_cli.keep import link
from andrea_rundir.events import Event
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.lock import probe
from andrea_rundir.names import RunDir, locate
from andrea_service import identity
from andrea_service.presence import look

OWNERS = True
POLL_SECONDS = 0.1


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --keep, --timeout."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--keep", action="store_true", help="keep it for ever, as `andrea keep` does")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=600.0, help="wait at most so long (default 600)"
    )


def run(args: Namespace) -> int:
    """Ask, wait, print."""
    directory = locate(args.run)
    event = request(directory, args.timeout)
    path = directory.root / str(event["file"])
    if args.keep:
        path = link(directory, event["step"])
    found = {"step": event["step"], "path": str(path), "digest": event["digest"], "kept": args.keep}
    output.show(args, found, [str(path), f"sha256 {event['digest']}"])
    return EXIT_OK


def request(run: RunDir, timeout: float) -> Event:
    """Send SIGUSR1 and return the event of the checkpoint that answers it; Refused when none comes."""
    facts.settings(run)
    newest = facts.newest(run)
    done = facts.recent(run).step if look(run).state == "running" else None
    identity.send(run, signal.SIGUSR1)
    deadline = time.monotonic() + timeout
    told = 0
    while True:
        alive = probe(run.train_lock).held
        since = facts.since(run, newest)  # after the look at the lock: its last words are not missed
        for event in since[told:]:
            if event["event"] == "warning":
                print(f"andrea: {event.get('what')}: {event.get('detail')}", file=sys.stderr)
            if event["event"] == "checkpoint" and (done is None or event["step"] >= done):
                return event
        told = len(since)
        if not alive:
            raise Refused(
                "the run ended before the checkpoint was made",
                where=str(run.root),
                found=look(run).sentence,
                todo="start it again, or use its newest checkpoint: `andrea status RUN` shows it",
            )
        if time.monotonic() > deadline:
            raise Refused(
                f"no checkpoint within {output.span(timeout)}",
                where=str(run.root),
                found=look(run).sentence,
                expected="a checkpoint at the next step edge",
                todo="it may still come: look at `andrea status` and at the journal",
            )
        time.sleep(POLL_SECONDS)
