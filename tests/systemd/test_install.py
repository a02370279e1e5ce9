"""From a machine that has never heard of us to a run that trains, and away again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.commands import CONFIG
from harness.host import PROXY, TRAIN, VENV, Host
from harness.machine import STATE

UNITS = Path(__file__).parents[2] / "units"
POLICY = '[arms.words]\npath = "/srv/texts"\n'
HEALTH = "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n"


def ask(host: Host, where: str) -> str:
    """What a page socket answers to a health check; `where` is `host:port` or the path of a socket."""
    code = (
        "import socket, sys; unix = '/' in sys.argv[1]\n"
        "s = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)\n"
        "s.connect(sys.argv[1] if unix else ('127.0.0.1', int(sys.argv[1])))\n"
        "s.sendall(sys.stdin.read().encode())\n"
        "print(b''.join(iter(lambda: s.recv(4096), b'')).decode())"
    )
    return host.run(VENV / "bin/python", "-c", code, where, stdin=HEALTH).stdout


def test_from_an_empty_host(host: Host) -> None:
    """`systemctl start` returns when it trains, in the hands of the user andrea; the page socket answers."""
    assert "wrote /usr/local/lib/systemd/system/andrea-train.service" in host.installed
    host.machine.write("/srv/run.toml", CONFIG.replace("max_steps = 40", "max_steps = 100000"))
    host.machine.write("/srv/policy.toml", POLICY)
    host.machine.write("/srv/texts/a.txt", "old stones under a quiet sea " * 500)
    host.andrea("init", "first", "--config", "/srv/run.toml", "--policy", "/srv/policy.toml")
    owners = host.run("find", STATE / "first", "-printf", "%u:%g:%m\n").stdout.split()
    assert {owner.rsplit(":", 1)[0] for owner in owners} == {"andrea:andrea"}
    assert all(int(owner.rsplit(":", 1)[1], 8) & 0o027 == 0 for owner in owners), owners
    assert "chose first" in host.andrea("use", "first")
    host.start()
    run = host.machine.state / "first"
    assert json.loads(host.andrea("status", "first", "--json"))["step"] >= 1
    for unit in (TRAIN, PROXY, f"{PROXY}.socket"):
        assert host.machine.state_of(unit)[0] == "active", unit
    shown = lambda: host.systemctl("status", TRAIN, "--no-pager")  # noqa: E731
    host.until("a status", lambda: 'Status: "step ' in (said := shown()) and "last checkpoint" in said)
    assert ask(host, "8470").endswith("\n\nok\n\n")
    assert "* first" in host.andrea("list")
    host.andrea("checkpoint", "first")
    host.andrea("stop", "first")
    assert host.until_state(TRAIN, lambda state: state[0] != "deactivating") == ("inactive", "success")
    owners = host.run("find", STATE / "first", "!", "-user", "andrea").stdout
    assert (owners, (run / ".loss.json").exists()) == ("", True)


def test_two_named_runs_side_by_side(host: Host) -> None:
    """Each with a page socket of its own, by the template units; the target stops them all, and waits for each."""
    host.change(f"{TRAIN}@.service", "ExecStopPost=/bin/sleep 3")
    for run in (host.make(use=False), host.make(use=False)):
        name = run.root.name
        host.start(f"{TRAIN}@{name}")
        assert host.machine.state_of(f"{PROXY}@{name}") == ("active", "success")
        assert ask(host, f"/run/andrea/{name}.sock").endswith("\n\nok\n\n")
    units = [f"{kind}@{name}" for name in ("*",) for kind in (TRAIN, PROXY)]
    active = ("list-units", "--plain", "--no-legend", "--state=active,activating,deactivating")
    assert len(host.systemctl(*active, *units).splitlines()) == 6  # a trainer, a proxy and a socket each
    assert f"start again: systemctl start {TRAIN}@{name}\n" in host.andrea("stop", name)
    host.systemctl("stop", "andrea.target")  # which was never started, and waits all the same
    assert host.systemctl(*active, *units) == ""


def test_a_python_in_a_home_directory_is_refused(host: Host) -> None:
    host.run(host.machine.python, "-m", "venv", "--without-pip", "/root/venv")
    site = f"/root/venv/lib/{host.machine.python.name}/site-packages"
    host.machine.write(f"{site}/lent.pth", f"{VENV}/lib/{host.machine.python.name}/site-packages\n/srv/lent/packages\n")
    done = host.run("/root/venv/bin/python", "-m", "andrea_cli.main", "units", "install", check=False)
    assert done.returncode == 1
    assert "/root/venv" in done.stderr and "to do:" in done.stderr


def test_uninstall_and_install(host: Host) -> None:
    """While something runs it refuses; then everything of ours goes but what is the operator's."""
    run = host.make()
    host.systemctl("enable", "--quiet", "--now", TRAIN)
    refused = host.run("andrea", "units", "uninstall", check=False)
    assert refused.returncode == 1
    assert f"{TRAIN}.service" in refused.stderr
    host.systemctl("stop", TRAIN, PROXY, f"{PROXY}.socket")
    assert "left: the runs" in host.andrea("units", "uninstall")
    assert host.run("find", "/usr/local", "/etc/systemd", "-name", "andrea*").stdout == ""
    assert (run.root / "run.toml").exists()
    conf = (host.machine.root / "etc/andrea/andrea.conf").read_text()
    assert f"ANDREA_RUN={run.root.name}\n" in conf
    host.run(VENV / "bin/andrea", "units", "install")
    assert (host.machine.root / "etc/andrea/andrea.conf").read_text() == conf
    host.start()


@pytest.mark.parametrize("kind", [TRAIN, PROXY])
def test_the_template_differs_only_in_the_run(kind: str) -> None:
    plain, named = ((UNITS / f"{kind}{suffix}.service").read_text().splitlines() for suffix in ("", "@"))
    here = [line for line in named if "%i" not in line and not line.startswith("#")]
    there = [line for line in plain if not line.startswith("#")]
    assert [line for line in here if line not in there] == [f"Environment=ANDREA_{kind.split('-')[1].upper()}_OPTIONS="]
    assert sum(line not in here for line in there) == sum("%i" in line for line in named if line[0:1] != "#") + 1
