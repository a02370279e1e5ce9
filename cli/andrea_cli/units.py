"""Install or uninstall the systemd units, and the user and directories that they need.

Unit files go to /usr/local/lib/systemd/system, so that /etc/systemd/system stays yours: `systemctl edit` wins over
them. They are written for the Python that runs this; one that the services could not see is refused. Uninstalling
leaves runs, /etc/andrea and the user where they are. With --prefix the files go under DIR and nothing else happens.
Exits 0 when it is done; 1 when something stands in the way: nothing has been changed then.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from andrea_cli import output, sandbox
from andrea_cli.service import BOOTED
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.publish import publish

AS_ROOT = True
UNITS = Path("usr/local/lib/systemd/system")
CONF = Path("etc/andrea/andrea.conf")
COMMAND = Path("usr/local/bin/andrea")
ELSEWHERE = {
    "andrea.sysusers.conf": Path("usr/local/lib/sysusers.d/andrea.conf"),
    "andrea.tmpfiles.conf": Path("usr/local/lib/tmpfiles.d/andrea.conf"),
    "andrea.conf": CONF,
}
WRITTEN_FOR = "/opt/andrea/venv"
"""Where the shipped units expect the virtual environment."""


@dataclass(frozen=True)
class Item:
    """A file to be: its place below the root, and its text."""

    place: Path
    text: str


def add_arguments(parser: ArgumentParser) -> None:
    """install or uninstall, --prefix, --dry-run."""
    parser.add_argument("act", choices=("install", "uninstall"))
    parser.add_argument("--prefix", metavar="DIR", type=Path, help="write under DIR instead of /, and do no more")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")


def run(args: Namespace) -> int:
    """Do it, and print every file touched and every command run."""
    root = args.prefix or Path("/")
    if args.prefix is None and os.geteuid() != 0 and not args.dry_run:
        raise Refused(f"units {args.act} changes system files", expected="root", todo=f"sudo andrea units {args.act}")
    files = items(shipped(), sys.prefix)
    if args.act == "install":
        sandbox.check()
        done = _install(root, files, whole=args.prefix is None, dry=args.dry_run)
    else:
        done = _uninstall(root, files, whole=args.prefix is None, dry=args.dry_run)
    output.show(args, {"act": args.act, "dry_run": args.dry_run, "done": done}, done)
    return EXIT_OK


def shipped() -> Path:
    """The folder of unit files: of the checkout that this module lies in, else of the installed wheel."""
    places = (Path(__file__).parents[2] / "units", Path(sys.prefix) / "share" / "andrea" / "units")
    for folder in places:
        if (folder / "andrea-train.service").is_file():
            return folder
    raise Refused(
        "the unit files are not here",
        where=" or ".join(map(str, places)),
        todo="install andrea-train from a wheel or a checkout",
    )


def items(folder: Path, environment: str) -> list[Item]:
    """What the shipped files become when the virtual environment is `environment`."""
    made = []
    for path in sorted(folder.iterdir()):
        place = ELSEWHERE.get(path.name)
        if place is None and path.suffix in (".service", ".socket", ".target"):
            place = UNITS / path.name
        if place is not None:
            made.append(Item(place, path.read_text(encoding="utf-8").replace(WRITTEN_FOR, environment)))
    return made


def _install(root: Path, files: list[Item], *, whole: bool, dry: bool) -> list[str]:
    command = Path(sys.prefix) / "bin" / "andrea"
    link = root / COMMAND
    if os.path.lexists(link) and not _ours(link):
        raise Refused("this is not ours", where=str(link), expected="nothing, or a link to an `andrea`")
    done = []
    for item in files:
        path = root / item.place
        if item.place == CONF and path.exists():
            done.append(f"left as it is: {path}")
            continue
        done.append(f"wrote {path}")
        if not dry:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            publish(path, item.text.encode(), mode=0o644)
    if command.exists():
        done.append(f"linked {link} to {command}")
        if not dry:
            link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(command)
    if not whole:
        return done
    done += _call(["systemd-sysusers", "andrea.conf"], dry)
    done += _call(["systemd-tmpfiles", "--create", "andrea.conf"], dry)
    done += _reload(dry)
    return [
        *done,
        "next: andrea init RUN ..., andrea use RUN, systemctl enable --now andrea-train",
    ]


def _uninstall(root: Path, files: list[Item], *, whole: bool, dry: bool) -> list[str]:
    units = [item.place.name for item in files if item.place.parent == UNITS]
    done = []
    if whole and BOOTED.is_dir():
        _refuse_active()
        plain = [name for name in units if "@" not in name and name != "andrea-gpu.service"]
        done += _call(["systemctl", "disable", "--quiet", *plain], dry)
    for item in files:
        path = root / item.place
        if item.place != CONF and path.exists():
            done.append(f"removed {path}")
            if not dry:
                path.unlink()
    if _ours(root / COMMAND):
        done.append(f"removed {root / COMMAND}")
        if not dry:
            (root / COMMAND).unlink()
    if not whole:
        return done
    done += _reload(dry)
    return [*done, "left: the runs in /var/lib/andrea, /etc/andrea, the user andrea"]


def _ours(link: Path) -> bool:
    return link.is_symlink() and link.readlink().name == "andrea"


def _refuse_active() -> None:
    listed = subprocess.run(
        ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating", "andrea*"],
        capture_output=True,
        text=True,
        check=False,
    )
    active = [line.split()[0] for line in listed.stdout.splitlines() if line and ".slice" not in line]
    if active:
        raise Refused(
            "the services are at work",
            found=", ".join(active),
            expected="nothing of ours active",
            todo=f"systemctl disable --now {' '.join(active)}",
        )


def _reload(dry: bool) -> list[str]:
    if not BOOTED.is_dir():
        return ["systemd does not run here: it will read the units when it starts"]
    return _call(["systemctl", "daemon-reload"], dry)


def _call(command: list[str], dry: bool) -> list[str]:
    """Run a command of systemd's; Refused with what it said when it fails."""
    if not dry:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise Refused(f"{command[0]} is not here", expected="a machine with systemd") from None
        if done.returncode != 0:
            said = done.stderr.strip() or f"exit code {done.returncode}"
            raise Refused(f"{command[0]} failed", where=" ".join(command), found=said)
    return [f"ran {' '.join(command)}"]
