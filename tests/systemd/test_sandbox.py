"""What the units are allowed to do, and that what training needs is among it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness import wait_step
from harness.host import PROXY, TRAIN, Host
from harness.machine import LENT, VENV

UNITS = (
    "andrea-train.service andrea-proxy.service andrea-proxy.socket andrea-gpu.service andrea.target "
    "andrea-train@x.service andrea-proxy@x.service andrea-proxy@x.socket andrea-alert@x.service"
).split()


def test_systemd_has_nothing_to_say(host: Host) -> None:
    done = host.run("systemd-analyze", "verify", "--man=no", *UNITS, check=False)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(("unit", "tenths"), [(TRAIN, 10), (f"{TRAIN}@x", 10), (PROXY, 6), (f"{PROXY}@x", 6)])
def test_exposure(host: Host, unit: str, tenths: int) -> None:
    host.run("systemd-analyze", "security", "--offline=true", f"--threshold={tenths}", f"{unit}.service")


def attempts(host: Host, unit: str) -> dict[str, Any]:
    """What harness.sandboxed finds that a program can do in the place of the unit's own."""
    host.change(
        f"{unit}.service",
        *("Type=oneshot", "WatchdogSec=0", "Restart=no", f"Environment=PYTHONPATH={LENT}/tests"),
        *("ExecStart=", f"ExecStart={VENV}/bin/python -m harness.sandboxed"),
    )
    since = host.machine.now()
    host.start(unit)
    (line,) = (e["MESSAGE"] for e in host.machine.journal("-t", unit, since=since) if e["MESSAGE"].startswith("{"))
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize(("unit", "writable"), [(TRAIN, {"state", "cache"}), (PROXY, {"state"})])
def test_inside(host: Host, unit: str, writable: set[str]) -> None:
    """No write outside state and cache, no network, no home directories, nobody else's processes."""
    host.machine.write("/home/somebody/letter", "")
    found = attempts(host, unit)
    assert {name for name, done in found["writes"].items() if done} == {*writable, "tmp"}
    assert not any(found["network"].values()), found
    assert found["namespace"] != host.run("readlink", "/proc/self/ns/net").stdout.strip()
    assert sorted(host.show(unit, "IPAddressDeny")["IPAddressDeny"].split()) == [
        "0.0.0.0/0",
        "::/0",
    ]  # as a second wall
    assert found["homes"] == []
    assert found["processes"] <= 2, found  # itself, and the other service
    assert found["user"] == "andrea"
    assert not (host.machine.root / "tmp/andrea-was-here").exists()


@pytest.mark.timeout(300)
def test_it_compiles_and_computes_in_bf16(host: Host) -> None:
    """The shipped unit, a run that is compiled and in bf16: what needs code that is made at run time."""
    run = host.make(run={"compile": True, "precision": "bf16"}, model={"d_model": 64, "n_heads": 2, "n_layers": 1})
    host.change(f"{TRAIN}.service", "WatchdogSec=10s")  # compiling takes longer, and is announced
    host.systemctl("start", TRAIN, timeout=280)
    wait_step(run, 12)
    host.stop()
    assert host.machine.state_of(TRAIN) == ("inactive", "success")
