"""Choose the run that `systemctl start andrea-train` trains: writes its name into /etc/andrea/andrea.conf.

Takes effect when the services start the next time. Exits 0 when it is chosen; 1 when there is no such run
under the state directory.
"""

from __future__ import annotations

import os
import re
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from andrea_cli import output
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.names import RunDir, locate, state_directory
from andrea_rundir.publish import publish
from andrea_service import owner
from andrea_service.presence import look

AS_ROOT = True
CONF = Path("/etc/andrea/andrea.conf")
UNIT = Path("/usr/local/lib/systemd/system/andrea-train.service")
SERVED = Path("/var/lib/andrea")
"""Where the units may write."""
_LINE = re.compile(r"(?m)^ANDREA_RUN=.*$")


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --dry-run."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, change nothing")


def run(args: Namespace) -> int:
    """Write the line and say what was chosen before, and how it takes effect."""
    name = named(locate(args.run), state_directory())
    before = chosen(CONF)
    busy = before not in ("", name) and look(locate(before)).alive if _known(before) else False
    if not args.dry_run:
        owner.demand(CONF, args.typed)
        choose(CONF, name)
    shown = [f"{'would choose' if args.dry_run else 'chose'} {name}" + (f", it was {before}" if before else "")]
    if busy:
        shown.append(f"{before} goes on until: systemctl restart andrea-train andrea-proxy")
    elif before != name:
        shown.append("start it: systemctl start andrea-train")
    output.show(args, {"run": name, "before": before, "running": busy, "dry_run": args.dry_run}, shown)
    return EXIT_OK


def named(run: RunDir, state: Path) -> str:
    """The name of a run that lies right under the state directory; Refused for any other."""
    if not run.run_toml.exists():
        raise run.missing()
    real = Path(os.path.realpath(run.root))
    if real.parent != Path(os.path.realpath(state)):
        raise Refused(
            "the services can write only under the state directory",
            where=str(real),
            expected=f"a run in {state}",
            todo=f"move it there, or mount the disk that it is on at {state}",
        )
    if not re.fullmatch(r"[A-Za-z0-9._-]+", real.name):
        raise Refused(
            "a unit cannot carry this name",
            where=str(real),
            found=real.name,
            expected="letters, digits, dots, underscores and dashes",
            todo="rename the directory",
        )
    return real.name


def chosen(conf: Path) -> str:
    """The run that the file names; empty when it names none or is not there."""
    try:
        lines = conf.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    # As systemd reads it: the last assignment counts, quotes may stand around the value.
    values = [line.split("=", 1)[1].strip().strip("'\"") for line in lines if line.startswith("ANDREA_RUN=")]
    return values[-1] if values else ""


def choose(conf: Path, name: str) -> None:
    """Put `name` into the file, which is replaced whole; everything else in it stays as it is."""
    text = conf.read_text(encoding="utf-8") if conf.exists() else ""
    line = f"ANDREA_RUN={name}"
    text = _LINE.sub(line, text) if _LINE.search(text) else f"{text}{line}\n"
    conf.parent.mkdir(mode=0o755, exist_ok=True)
    publish(conf, text.encode(), mode=0o644)


def start_command(root: Path) -> str:
    """What starts a run: its unit where that is installed and may write there, else the program itself."""
    if not UNIT.exists() or root.parent != SERVED:
        return f"andrea-train --run {shlex.quote(str(root))}"
    first = "" if chosen(CONF) == root.name else f"andrea use {shlex.quote(root.name)} && "
    return f"{first}systemctl start andrea-train"


def _known(name: str) -> bool:
    return bool(name) and locate(name).run_toml.exists()
