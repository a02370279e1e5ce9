"""Fold a run's history anew and compare what comes out with `.state.json`, figure by figure.

Beside a proxy at work, and with --dry-run, it only compares. Otherwise a file that is missing or differs is replaced
(the old one is kept as .state.json.bad). Exits 0 when the file is equal, or was missing and is made; 1 when it differs.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from andrea_cli import facts, output
from andrea_proxy.rebuild import Rebuilt, rebuild, write
from andrea_rundir import config
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED, Held
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir, locate
from andrea_service import identity

OWNERS = True
SHOWN = 10


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --dry-run."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--dry-run", action="store_true", help="compare, replace nothing")


def run(args: Namespace) -> int:
    """Fold, compare, replace where that is allowed."""
    directory = locate(args.run)
    facts.settings(directory)
    settings = config.load(directory.run_toml)
    if args.dry_run:
        found, replaced = rebuild(directory, settings), False
    else:
        found, replaced = _rebuilt(directory, settings)
    equal = not (found.differences or found.problem)
    shown = {
        "run": str(directory.root),
        "step": found.content["step"],
        "entries": found.entries,
        "equal": equal,
        "problem": found.problem,
        "differences": found.differences,
        "replaced": replaced,
    }
    lines = [f"{found.entries:,} entries folded, to step {found.content['step']:,}"]
    if equal:
        lines.append(".state.json is equal to what they give")
    lines += [found.problem] if found.problem else []
    lines += [f"differs: {name}" for name in found.differences[:SHOWN]]
    if (more := len(found.differences) - SHOWN) > 0:
        lines.append(f"and {more} more")
    if replaced:
        lines.append(".state.json was replaced")
    elif not equal and not args.dry_run:
        lines.append("andrea-proxy is at work: stop it and repeat the command to replace the file")
    output.show(args, shown, lines)
    return EXIT_REFUSED if found.differences or (found.problem and not replaced) else EXIT_OK


def _rebuilt(run: RunDir, settings: config.RunConfig) -> tuple[Rebuilt, bool]:
    """What was found, and whether the file was replaced: not while a proxy holds the run."""
    try:
        with Lock.acquire(run.proxy_lock, identity.me(settings.run.id)):
            found = rebuild(run, settings)
            wrong = bool(found.differences or found.problem)
            if wrong:
                write(run, settings)
            return found, wrong
    except Held:
        return rebuild(run, settings), False
