"""`andrea units` where no systemd runs; the booted machine of tests/systemd does the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from andrea_cli import sandbox, units
from andrea_rundir.faults import Refused
from harness.commands import Andrea, snapshot

SHIPPED = Path(__file__).parents[2] / "units"


@pytest.fixture(autouse=True)
def visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own Python may lie in a home directory."""
    monkeypatch.setattr(sandbox, "check", lambda: None)


def test_under_a_prefix(andrea: Andrea, tmp_path: Path) -> None:
    root = tmp_path / "root"
    done = andrea("units", "install", "--prefix", root, "--json")
    assert done.code == 0, done.err
    written = {str(path.relative_to(root).parent) for path in root.rglob("*") if path.is_file()}
    assert len(done.json["done"]) == len(list(SHIPPED.iterdir())) + 1  # and the link to the command
    places = ("bin", "lib/systemd/system", "lib/sysusers.d", "lib/tmpfiles.d")
    assert written == {"etc/andrea", *(f"usr/local/{place}" for place in places)}
    unit = (root / "usr/local/lib/systemd/system/andrea-train.service").read_text()
    assert f" {sys.prefix}/bin/andrea-train --run" in unit
    assert units.WRITTEN_FOR not in unit
    assert not any("systemctl" in line for line in done.json["done"])
    conf = root / "etc/andrea/andrea.conf"
    conf.write_text("ANDREA_RUN=mine\n")
    andrea("units", "install", "--prefix", root)
    assert conf.read_text() == "ANDREA_RUN=mine\n"
    assert andrea("units", "uninstall", "--prefix", root).code == 0
    assert [path for path in root.rglob("*") if path.is_file()] == [conf]


def test_a_dry_run_changes_nothing(andrea: Andrea, tmp_path: Path) -> None:
    done = andrea("units", "install", "--prefix", tmp_path, "--dry-run")
    assert "wrote" in done.out
    assert snapshot(tmp_path) == {}


def test_somebody_elses_command_is_not_replaced(andrea: Andrea, tmp_path: Path) -> None:
    command = tmp_path / "usr/local/bin/andrea"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    before = snapshot(tmp_path)
    assert andrea("units", "install", "--prefix", tmp_path).code == 1
    assert snapshot(tmp_path) == before


def test_what_the_sandbox_hides(tmp_path: Path) -> None:
    for hidden in ("/root", "/home", "/tmp"):
        assert sandbox.hides(Path(hidden)) == f"{hidden}: the sandbox hides {hidden}"
    assert sandbox.hides(Path("/usr/bin/env")) is None


def test_what_other_users_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "HIDDEN", ())
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    file = tmp_path / "closed" / "file"
    file.parent.mkdir(mode=0o700)
    file.write_text("")
    assert sandbox.hides(file) == f"{file.parent} is closed to other users"
    file.parent.chmod(0o755)
    file.chmod(0o600)
    assert sandbox.hides(file) == f"{file} cannot be read by other users"


def test_without_unit_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(units, "__file__", str(tmp_path / "a/b/c.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(Refused, match="unit files are not here"):
        units.shipped()


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.*")), ids=lambda path: path.name)
def test_units_carry_no_key_that_is_newer_than_systemd_252(path: Path) -> None:
    newer = (
        "RestartSteps=",
        "RestartMaxDelaySec=",
        "FileDescriptorStorePreserve=",
        "MemoryPressureWatch=",
        "notify-reload",
    )
    assert not any(word in path.read_text() for word in newer)
