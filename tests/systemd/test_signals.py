"""`systemctl start`, `kill -s USR1` and `stop`, as an operator types them."""

from __future__ import annotations

import signal

from andrea_rundir import inspection
from harness import wait_step
from harness.host import TRAIN, Host

CLEAN = ("inactive", "success")


def test_start_returns_when_it_trains(host: Host) -> None:
    run = host.make()
    host.start()
    assert host.last_step(run) >= 1
    assert host.machine.state_of(TRAIN) == ("active", "success")
    assert host.show(TRAIN, "WatchdogUSec") == {"WatchdogUSec": "2min"}  # armed; the tests of it cannot wait so long
    host.machine.run("sleep", "1.5")
    shown = host.systemctl("status", TRAIN, "--no-pager")
    assert 'Status: "step ' in shown and "last checkpoint" in shown, shown
    host.stop()
    assert host.machine.state_of(TRAIN) == CLEAN
    assert host.newest(run) == host.last_step(run)
    inspection.inspect(run.checkpoint(host.newest(run)))


def test_usr1_to_every_process(host: Host) -> None:
    """One new checkpoint, the run goes on, every child lives; also right after the start, and 50 in a row. Children
    have no say with systemd; a stop is not for them: they are killed once the trainer has saved and gone."""
    run = host.make(checkpoint={"every": 100_000}, probe={"every": 100_000})
    host.hurt({"at": "andrea_train.loop:Loop._step", "call": 1, "do": "CHILD", "times": 3})
    since = host.machine.now()
    host.start()
    host.systemctl("kill", "-s", "USR1", TRAIN)
    host.until("a checkpoint", lambda: host.newest(run) > 0)
    first = host.newest(run)
    wait_step(run, host.last_step(run) + 50)
    assert host.newest(run) == first
    before = processes(host)
    assert len(before) == 1 + 3
    for _ in range(50):
        host.systemctl("kill", "-s", "USR1", TRAIN)
    host.until("another", lambda: host.newest(run) > first)
    wait_step(run, host.last_step(run) + 50)
    assert processes(host) == before
    assert host.show(TRAIN, "NRestarts")["NRestarts"] == "0"
    host.stop()
    assert host.machine.state_of(TRAIN) == CLEAN
    assert processes(host) == []
    assert host.machine.journal("-t", "helper", since=since) == []
    told = [entry["MESSAGE"] for entry in host.machine.journal("-u", TRAIN, "_PID=1", since=since)]
    assert sum("reception only permitted for main PID" in message for message in told) == 3, told


def test_usr1_before_there_is_anybody_to_take_it(host: Host) -> None:
    """The unit holds it back while Python starts; the run gets there in its first start."""
    host.make()
    host.dawdle()
    host.systemctl("start", "--no-block", TRAIN)
    host.until("its program", lambda: host.program(TRAIN) == TRAIN)
    host.systemctl("kill", "-s", "USR1", TRAIN)
    host.until_state(TRAIN, lambda state: state[0] != "activating" or host.show(TRAIN, "NRestarts")["NRestarts"] != "0")
    assert host.machine.state_of(TRAIN) == ("active", "success")
    assert host.show(TRAIN, "NRestarts")["NRestarts"] == "0"


def processes(host: Host) -> list[str]:
    """Names of all processes of the trainer's unit."""
    group = host.show(TRAIN, "ControlGroup")["ControlGroup"]
    look = f"for p in /proc/[0-9]*; do grep -qs ':{group}$' $p/cgroup && cat $p/comm; done; true"
    return sorted(host.run("sh", "-c", look).stdout.split()) if group else []


def test_a_plain_kill_is_a_stop(host: Host) -> None:
    run = host.make()
    host.start()
    host.machine.kill(host.machine.main_pid(TRAIN), signal.SIGTERM)
    assert host.until_state(TRAIN, lambda state: state[0] != "active" and state[0] != "deactivating") == CLEAN
    assert host.newest(run) == host.last_step(run)
    assert host.show(TRAIN, "NRestarts")["NRestarts"] == "0"
