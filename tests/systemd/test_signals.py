"""`systemctl start`, `kill -s USR1` and `stop`, as an operator types them."""

from __future__ import annotations

import signal

from andrea_rundir import checkpoint
from harness import until, wait_step
from harness.host import TRAIN, Host

CLEAN = ("inactive", "success")


def test_start_returns_when_it_trains(host: Host) -> None:
    run = host.make()
    host.start()
    assert host.last_step(run) >= 1
    assert host.machine.state_of(TRAIN) == ("active", "success")
    host.machine.run("sleep", "1.5")
    shown = host.systemctl("status", TRAIN, "--no-pager")
    assert 'Status: "step ' in shown and "last checkpoint" in shown, shown
    host.stop()
    assert host.machine.state_of(TRAIN) == CLEAN
    assert host.newest(run) == host.last_step(run)
    checkpoint.inspect(run.checkpoint(host.newest(run)))


def test_usr1_to_every_process(host: Host) -> None:
    """One new checkpoint, the run goes on, every child lives; also right after the start, and 50 in a row."""
    run = host.make(checkpoint={"every": 100_000}, probe={"every": 100_000})
    host.hurt({"at": "andrea_train.loop:Loop._step", "call": 1, "do": "CHILD", "times": 3})
    host.start()
    host.systemctl("kill", "-s", "USR1", TRAIN)
    until("a checkpoint", lambda: host.newest(run) > 0)
    first = host.newest(run)
    wait_step(run, host.last_step(run) + 50)
    assert host.newest(run) == first
    before = processes(host)
    assert before.count("sleep") == 3
    for _ in range(50):
        host.systemctl("kill", "-s", "USR1", TRAIN)
    until("another", lambda: host.newest(run) > first)
    wait_step(run, host.last_step(run) + 50)
    assert processes(host) == before
    assert host.show(TRAIN, "NRestarts")["NRestarts"] == "0"
    host.stop()
    assert host.machine.state_of(TRAIN) == CLEAN
    assert "sleep" not in processes(host)


def processes(host: Host) -> list[str]:
    """Names of all processes of the trainer's unit."""
    group = host.show(TRAIN, "ControlGroup")["ControlGroup"]
    listed = host.run(
        "sh",
        "-c",
        f"cat /proc/[0-9]*/cgroup /dev/null | grep -c . >/dev/null; "
        f"for p in /proc/[0-9]*; do grep -qs ':{group}$' $p/cgroup && cat $p/comm; done; true",
    )
    return sorted(listed.stdout.split()) if group else []


def test_a_plain_kill_is_a_stop(host: Host) -> None:
    run = host.make()
    host.start()
    host.machine.kill(host.machine.main_pid(TRAIN), signal.SIGTERM)
    assert host.until_state(TRAIN, lambda state: state[0] != "active" and state[0] != "deactivating") == CLEAN
    assert host.newest(run) == host.last_step(run)
    assert host.show(TRAIN, "NRestarts")["NRestarts"] == "0"
