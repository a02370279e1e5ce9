"""`andrea`: finds the verb, imports its module alone, runs it inside the boundary that turns faults into words.

Writes nothing itself. Standard library, `andrea_service.errors` and `.owner` only: `andrea --help` must start at once.
A module says `AS_ROOT` if root stays root in it, and `OWNERS` if it is for the owner of the run only.
"""

from __future__ import annotations

import argparse
import importlib
import io
import keyword
import sys
from collections.abc import Sequence

from andrea_cli import output
from andrea_rundir.faults import Fault
from andrea_rundir.names import locate
from andrea_service import owner
from andrea_service.errors import boundary

VERBS = {
    "init": "make a run directory",
    "prepare": "make the token shards that a run's policy asks for",
    "check": "try a run before it starts: speed, time, memory, disk, epochs",
    "status": "say what a run does now",
    "checkpoint": "ask a training run for a checkpoint and wait for it",
    "pivot": "go over to another policy at the next boundary, same weights",
    "fork": "make a run that goes on from a checkpoint of another",
    "compare": "compare two branches of a run since they parted",
    "stop": "stop a training run at the next step edge, saved",
    "verify": "prove that what a run has on disk is whole",
    "inspect": "verify a checkpoint file and say what is in it",
    "keep": "keep a checkpoint for ever",
    "samples": "show the texts a run's model wrote at its checkpoints",
    "sample": "let the model of a checkpoint file go on with a text",
    "export": "write a checkpoint's model in a form that others load",
    "import": "make a checkpoint file of an exported model",
    "plot": "draw a run's history into a picture",
    "list": "list the runs of the state directory",
    "url": "print the way to a run's page",
    "use": "choose the run that the services work on",
    "rebuild-state": "fold a run's history anew and prove .state.json equal",
    "units": "install or uninstall the systemd units",
}

EXIT_CODES = """\
exit codes: 0 done; 1 the check failed or the request was refused; 2 the command line makes no sense;
75 another process holds the lock; 78 a configuration, policy or source cannot be used; 70 a bug of ours.
With --json one JSON object with "schema": 1 goes to stdout, an error too (as "error"); messages go to stderr."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the script."""
    return boundary(lambda: _dispatch(sys.argv[1:] if argv is None else list(argv)), "andrea")


def _dispatch(argv: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be text
    args = _parser(argv).parse_args(argv)
    try:
        if hasattr(args, "run") and not getattr(args.module, "AS_ROOT", False):
            owner.become(locate(args.run).root)
        if getattr(args.module, "OWNERS", False) and not getattr(args, "dry_run", False):
            owner.demand(locate(args.run).root, args.typed)
        return int(args.module.run(args))
    except Fault as fault:
        if args.json:
            output.show_error(fault)
        raise


def _parser(argv: list[str]) -> argparse.ArgumentParser:
    """The parser of all verbs, with the arguments of the one that was typed."""
    parser = argparse.ArgumentParser(
        prog="andrea",
        description="Look after long training runs. RUN is a path, or a name under the state directory.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    typed = next((word for word in argv if not word.startswith("-")), None)
    if typed is not None and typed not in VERBS:
        import difflib

        close = difflib.get_close_matches(typed, VERBS, n=1)
        parser.error(
            f"no such verb: {typed}" + (f"; did you mean {close[0]}?" if close else f"; one of {', '.join(VERBS)}")
        )
    for name, summary in VERBS.items():
        verb = verbs.add_parser(
            name, help=summary, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == typed:
            equip(verb, name)
            verb.set_defaults(typed=["andrea", *argv])
    return parser


def equip(parser: argparse.ArgumentParser, name: str) -> None:
    """Import a verb and give a parser its description and arguments."""
    module = importlib.import_module(f"andrea_cli.{_module(name)}")
    parser.description = module.__doc__
    module.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(module=module)


def _module(verb: str) -> str:
    """The module of a verb: its name, made one that Python takes."""
    return f"{verb}_" if keyword.iskeyword(verb) else verb.replace("-", "_")


class _Version(argparse.Action):
    """Prints the version; looks it up only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"andrea-train {version('andrea-train')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
