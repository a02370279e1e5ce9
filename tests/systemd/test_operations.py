"""docs/operations.md, typed from top to bottom on a machine that has never heard of us: each command does what it is
for, and says what the page shows of it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness import until
from harness.machine import STATE, VENV, Machine
from harness.wheels import ROOT, build

PAGE = (ROOT / "docs" / "operations.md").read_text()
DESK = Path("/srv/desk")
"""Where the operator sits, with what the page takes for granted at hand."""
NEW = "0.1.1"
POLISH = """\
[arms.reference]
path = "/var/lib/andrea/demo/data/demo/reference"
[arms.letters]
path = "/srv/letters"
"""
MAIL = '#!/bin/sh\nlogger -t mail "$@ $(cat)"\n'
LOOKS = ("systemctl status", "journalctl", "andrea status", "andrea list", "andrea samples")
"""These are repeated until they show what the page shows, for PATIENCE seconds at most."""
PATIENCE = 200
UNTYPED = {
    "systemctl edit andrea-train": "opens an editor",
    "systemctl edit andrea-proxy.socket": "opens an editor",
    "kill PID": "test_signals",
    "andrea prepare RUN": "the page does it with --policy",
    "rm -r": "no run is named",
    "ssh -L 8470:/run/andrea/NAME.sock HOST": "the machine has no network",
    "systemctl reset-failed andrea-train": "the page does it to a named run",
    "andrea fork demo try --step 400 --set optimizer.lr=1e-4": "test_owner_days",
    "systemctl start andrea-train@try": "test_owner_days",
    "kill -USR1 $(cat RUN/train.pid)": "tests/andrea_proxy/test_pivot.py goes that way",
}
"""Commands in running text that no block of the page has, and why."""


@dataclass
class Typed:
    """A command of the page, root's or a reader's, and the lines that it shows of what comes."""

    command: str
    shown: list[str] = field(default_factory=list)
    reader: bool = False

    @property
    def refused(self) -> bool:
        """Whether the page shows it fail."""
        return any(line.startswith(("  where:", "Job for ", "× ")) for line in self.shown)


def sections() -> dict[str, list[Typed]]:
    """The commands of every section, in order; of a file to be written, the `cat` that writes it. A block of a kind
    of its own (```text) is not typed."""
    found: dict[str, list[Typed]] = {}
    for part in re.split(r"(?m)^## ", PAGE)[1:]:
        blocks = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", part)
        found[part.splitlines()[0]] = [typed for kind, block in blocks if not kind for typed in commands(block)]
    return found


def commands(block: str) -> Iterator[Typed]:
    """A block is a file (`#!`), or commands behind `# ` or `$ ` with what they print, or commands alone."""
    lines = block.splitlines()
    if lines[0].startswith("#!"):
        yield Typed(f"cat >/etc/andrea/alert <<'END'\n{block}END")
    elif not lines[0].startswith(("# ", "$ ")):
        yield from (Typed(line) for line in lines)
    else:
        for prompt, part in re.findall(r"(?ms)^([#$]) (.*?)(?=^[#$] |\Z)", block):
            command, *shown = part.splitlines()
            yield Typed(command, [line for line in shown if line not in ("...", "")], reader=prompt == "$")


def masked(line: str, hostname: str) -> str:
    """What stays the same from one machine and one minute to the next."""
    line = re.sub(rf"(?<= ){re.escape(hostname)}(?= |$)", "host", line)
    line = re.sub(r"token=\S+", "token", line)
    line = re.sub(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b", "DAY", line)
    line = re.sub(r"\b[0-9a-f]{12,}\b", "DIGEST", line)
    line = re.sub(r"\b\d+ ?(d|h|min|m|s|ms)\b( \d+ ?(h|min|m|s)\b)*", "SPAN", line)
    line = re.sub(r"-?\d[\d,.:]*", "#", line)
    return " ".join(line.split())


class Operator:
    """Types commands on the machine, in front of the things that the page takes for granted."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.places = {"/dev/DISK": "/dev/DISK", "-NEW-": f"-{NEW}-"}
        self.hostname = machine.run("hostname").stdout.strip()

    def types(self, typed: Typed) -> None:
        command = typed.command.replace("--step 205", f"--step {self.absent()}")
        for name, meant in self.places.items():
            command = command.replace(name, meant)
        deadline = time.monotonic() + (PATIENCE if command.startswith(LOOKS) else 0)
        while lacking := self.lacks(typed, said := self.enter(command, typed)):
            assert time.monotonic() < deadline, f"{command}: {lacking} is not in:\n{said}"
            time.sleep(0.5)

    def absent(self) -> int:
        """A step that the demo has no checkpoint of, nor will have."""
        there = self.machine.run("sh", "-c", "ls /var/lib/andrea/demo 2>/dev/null || true").stdout
        return next(step for step in range(1, 100) if f"step_{step:06d}.bin" not in there)

    def enter(self, command: str, typed: Typed) -> str:
        """What it prints; it must end with 0, unless the page shows it fail."""
        place = ["/home/ann", "ANDREA_STATE=/var/lib/andrea"] if typed.reader else [DESK, "PIP_NO_INDEX=1"]
        shell = ["env", "-C", *place, "PIP_DISABLE_PIP_VERSION_CHECK=1", "bash", "-c", f"{{ {command}\n}} 2>&1"]
        done = self.machine.run(*shell, user="ann" if typed.reader else "", check=False, timeout=300)
        assert (done.returncode != 0) == typed.refused, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def lacks(self, typed: Typed, said: str) -> list[str]:
        """The lines of the page that are not among those that were printed."""
        printed = {masked(line, self.hostname) for line in said.splitlines()}
        return [line for line in typed.shown if masked(line, self.hostname) not in printed]


@pytest.fixture
def operator(bare: Machine, wheel: Path, newer: Path) -> Operator:
    """In front of a fresh machine, with the wheels and the like at hand."""
    bare.write(f"{DESK}/polish.toml", POLISH)
    for file in (wheel, newer, ROOT / "constraints.txt"):
        shutil.copy(file, bare.root / "srv/desk" / file.name)
    bare.write("/srv/letters/a.txt", "Dear reader, this is one more letter about the sea. " * 2000)
    bare.write("/usr/local/bin/mail", MAIL, 0o755)
    bare.run("useradd", "--create-home", "ann")
    return Operator(bare)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the next version."""
    return build(tmp_path_factory.mktemp("newer"), NEW)


@pytest.mark.timeout(900)
def test_the_page_from_top_to_bottom(operator: Operator) -> None:
    machine = operator.machine
    for title, typed in sections().items():
        if title == "Move to another disk":
            operator.places["/dev/DISK"] = machine.add_disk()
        for one in typed:
            operator.types(one)
            if one.command.startswith("andrea pivot") and not one.refused:
                operator.places["--step 200"] = f"--step {boundary(machine)}"
            if "-m venv" in one.command:
                machine.lend(VENV)
        if title == "Alerts":
            until("a mail", lambda: machine.journal("-t", "mail") != [], pause=0.5)
        if title == "Upgrade":
            assert NEW in machine.run("andrea", "--version").stdout
        if title == "Move to another disk":
            assert machine.run("findmnt", "-no", "FSTYPE", STATE).stdout == "ext4\n"
    assert machine.run("find", "/etc", "/opt", "/usr/local", "/var/lib", "/var/cache", "-name", "andrea*").stdout == ""


def boundary(machine: Machine) -> int:
    """The step of the newest pivot of the demo that is done; 200 before there is one."""
    archived = machine.run("sh", "-c", "ls /var/lib/andrea/demo/archive 2>/dev/null || true").stdout.split()
    return max((int(name.removeprefix("step_")) for name in archived), default=200)


def test_every_command_in_the_text_is_one_of_them() -> None:
    """Or stands in UNTYPED."""
    typed = {one.command.partition("  ")[0] for commands in sections().values() for one in commands}
    text = re.sub(r"(?ms)^```\w*\n.*?^```$", "", PAGE)
    inline = {" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)}
    programs = ("systemctl ", "journalctl ", "andrea ", "kill ", "ssh ", "rm ", "usermod ")
    named = {code for code in inline if code.startswith(programs) and not re.fullmatch(r"andrea \S+", code)}
    assert named - typed == set(UNTYPED)
