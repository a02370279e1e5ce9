"""`andrea status` tells every state apart, from outside and inside the sandbox, whoever asks."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from andrea_rundir.names import RunDir
from harness.host import OUTSIDER, PROXY, READER, TRAIN, VENV, Host
from harness.machine import STATE


def agreed(host: Host, run: RunDir, state: str, *, inside: bool = False) -> None:
    """Root, who becomes the owner, and a member of the group see it so; and so does the proxy's sandbox."""
    assert {user or "root": host.status(run, user=user)["state"] for user in ("", READER)} == {
        "root": state,
        READER: state,
    }
    if inside:
        assert seen_inside(host, run) == state


def seen_inside(host: Host, run: RunDir) -> str:
    """The state as seen from a unit with the sandbox of andrea-proxy.service."""
    shipped = (host.machine.root / "usr/local/lib/systemd/system/andrea-proxy.service").read_text()
    sandbox = shipped[shipped.index("NoNewPrivileges") : shipped.index("[Install]")]
    host.machine.write(
        "/etc/systemd/system/looker.service",
        f"[Service]\nType=oneshot\nUser=andrea\nGroup=andrea\nStateDirectory=andrea\nStateDirectoryMode=0750\n"
        f"ExecStart={VENV}/bin/andrea status {STATE / run.root.name} --json\n{sandbox}",
    )
    host.systemctl("daemon-reload")
    since = host.machine.now()
    host.start("looker")
    lines = (entry["MESSAGE"] for entry in host.machine.journal("-u", "looker", since=since))
    found: str = json.loads(next(line for line in lines if line.startswith("{")))["state"]
    return found


def test_a_life(readers: Host) -> None:
    """Stopped, starting, running, stopped, stale."""
    host, run = readers, readers.make()
    agreed(host, run, "stopped")
    assert "never started" in host.status(run)["sentence"]
    host.hurt({"at": "andrea_train.loop:Loop._step", "call": 1, "do": "STOP"}, also=("WatchdogSec=0",))
    host.systemctl("start", "--no-block", TRAIN)
    host.until("a start event", lambda: run.events.is_dir() and any(run.events.iterdir()))
    agreed(host, run, "starting", inside=True)
    stat = ("cat", f"/proc/{host.machine.main_pid(TRAIN)}/stat")
    host.until("it stands still", lambda: host.run(*stat).stdout.rpartition(")")[2].split()[0] == "T")
    host.machine.kill(host.machine.main_pid(TRAIN), signal.SIGCONT)
    host.until("a step", lambda: host.status(run)["state"] == "running")
    agreed(host, run, "running", inside=True)
    assert host.status(run, user="andrea")["state"] == "running"
    host.stop()
    agreed(host, run, "stopped")
    assert "SIGTERM" in host.status(run)["sentence"]
    host.change(f"{TRAIN}.service", "Restart=no")
    host.start()
    host.machine.kill(host.machine.main_pid(TRAIN), signal.SIGKILL)
    host.until_state(TRAIN, lambda state: state[0] == "failed")
    agreed(host, run, "stale", inside=True)


def test_other_ends(readers: Host) -> None:
    """Finished, halted, foreign; and unknown to one who may not look."""
    host = readers
    finished, halted = host.make(max_steps=10), host.make()
    host.andrea("use", finished.root.name)
    host.start()
    host.until_state(TRAIN, lambda state: state[0] == "inactive")
    agreed(host, finished, "finished")
    host.andrea("use", halted.root.name)
    halted.checkpoint(10).write_bytes(b"spoilt")
    host.run("systemctl", "start", TRAIN, check=False)
    agreed(host, halted, "halted")
    with stranger(host, halted):
        host.until("the lock", lambda: host.status(halted)["state"] != "halted")
        agreed(host, halted, "foreign")
    assert host.status(halted, user=OUTSIDER)["state"] == "unknown"


@contextmanager
def stranger(host: Host, run: RunDir) -> Iterator[None]:
    """Another program holds the lock of the run."""
    unit = "stranger.service"
    host.run("systemd-run", f"--unit={unit}", "flock", STATE / run.root.name / "train.lock", "sleep", "300")
    try:
        yield
    finally:
        host.stop(unit)


def test_started_but_not_enabled(host: Host) -> None:
    run = host.make()

    def say() -> str:
        return host.andrea("status", STATE / run.root.name)

    host.start()
    assert f"{TRAIN} is not enabled" in say()
    assert host.status(run)["unit"] == f"{TRAIN}.service"
    host.systemctl("enable", "--quiet", "andrea.target")
    assert "not enabled" not in say()
    host.systemctl("disable", "--quiet", "andrea.target")
    host.systemctl("enable", "--quiet", TRAIN)
    assert "not enabled" not in say()
    assert host.machine.state_of(PROXY) == ("active", "success")
