"""Root acts as the owner of a run: checked in a child, for it cannot be undone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.demands import demand, no_root

CODE = """
import os, sys
from pathlib import Path
from andrea_service.owner import become
become(Path(sys.argv[1]))
print(os.getresuid(), os.getresgid(), os.environ.get("ANDREA_STATE"), oct(os.umask(0)))
"""


@pytest.fixture
def nobodys(tmp_path: Path) -> Path:
    demand("a directory of somebody else", no_root())
    folder = tmp_path / "nobodys"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    return folder


def become(path: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("ANDREA_STATE", "STATE_DIRECTORY")}
    command = [sys.executable, "-c", CODE, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def test_the_owner(nobodys: Path) -> None:
    """Of the run, or of where it is to be; names go on to mean what they meant."""
    for path in (nobodys, nobodys / "not" / "yet"):
        assert become(path) == "(65534, 65534, 65534) (65534, 65534, 65534) /var/lib/andrea 0o27\n"


def test_roots_own_stay_roots(tmp_path: Path, nobodys: Path) -> None:
    assert become(tmp_path / "new").startswith("(0, 0, 0) (0, 0, 0) None")


def test_an_owner_who_is_no_user(nobodys: Path) -> None:
    os.chown(nobodys, 54321, 54321)
    command = [sys.executable, "-m", "andrea_cli.main", "status", str(nobodys)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "54321" in done.stderr


DEMAND = """
import os, sys
from pathlib import Path
from andrea_rundir.faults import Refused
from andrea_service.owner import demand
os.setuid(int(sys.argv[2]))
try:
    demand(Path(sys.argv[1]), ["andrea", "stop", "a run"])
except Refused as fault:
    print(fault)
"""


def demanded(path: Path, user: int) -> str:
    command = [sys.executable, "-c", DEMAND, str(path), str(user)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_what_is_for_others_to_change(nobodys: Path) -> None:
    """Refused with the line to type; root, and the owner, may."""
    for folder in nobodys.parents:
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    for path in (nobodys, nobodys / "not" / "yet"):
        assert demanded(path, 0) == demanded(path, 65534) == ""
        said = demanded(path, 1)
        assert "found:    you are daemon\n" in said and "expected: nobody, or root\n" in said
        assert said.endswith("to do:    sudo andrea stop 'a run'\n")
    assert "expected: root\n" in demanded(Path("/etc"), 65534)
