"""`systemctl stop` and what stands in its way: a slow disk, a hung disk, a start that is not over, a run that is."""

from __future__ import annotations

import signal

from andrea_rundir import entries, inspection
from harness.disk import hanging, slow
from harness.host import TRAIN, Host

CLEAN = ("inactive", "success")
# Some 77 MB a checkpoint: five pieces.
LARGE = {"d_model": 256, "n_heads": 4, "n_layers": 8}
RARE = {"checkpoint": {"every": 100_000}, "probe": {"every": 100_000}}


def test_stop(host: Host) -> None:
    """The step is finished, its checkpoint published, and the sidecar knows the same last step."""
    run = host.make()
    host.start()
    host.until("the curriculum", lambda: run.loss.exists())
    host.stop()
    assert host.machine.state_of(TRAIN) == CLEAN
    last = host.last_step(run)
    assert host.newest(run) == last
    inspection.inspect(run.checkpoint(last))
    host.until("the last entry", lambda: max((entry["step"] for entry in entries.read(run.loss)), default=0) == last)


def test_a_slow_disk_gets_its_time(host: Host) -> None:
    """The write outlasts TimeoutStopSec; every piece that reaches the disk buys more."""
    run = host.make(model=LARGE, **RARE)
    host.change(f"{TRAIN}.service", "TimeoutStopSec=5s")
    host.start()
    with slow(host.machine.state, stall=2.5):
        began = host.machine.run("date", "+%s.%N").stdout
        host.stop()
        took = float(host.machine.run("date", "+%s.%N").stdout) - float(began)
    assert took > 7.5
    assert host.machine.state_of(TRAIN) == CLEAN
    assert host.newest(run) == host.last_step(run) > 0


def test_a_hung_disk_ends_in_a_kill(host: Host) -> None:
    """And what was published before is as valid as ever."""
    run = host.make(model=LARGE, **RARE)
    host.change(f"{TRAIN}.service", "TimeoutStopSec=2s")
    host.start()
    host.systemctl("kill", "-s", "USR1", TRAIN)
    host.until("a checkpoint", lambda: host.newest(run) > 0)
    before = host.newest(run)
    with hanging(host.machine.state):
        host.systemctl("stop", "--no-block", TRAIN)
        killed = ("stop-sigkill", "final-sigterm", "final-sigkill", "failed")
        host.until("a kill", lambda: host.show(TRAIN, "SubState")["SubState"] in killed, 60)
    assert host.until_state(TRAIN, lambda state: state[0] == "failed") == ("failed", "timeout")
    assert host.newest(run) == before
    inspection.inspect(run.checkpoint(before))
    assert host.status(run)["state"] == "stale"


def test_a_stop_while_it_starts(host: Host) -> None:
    """Before the first step, by `kill`: over at once, and not started again."""
    run = host.make()
    host.dawdle()
    for late in (False, True):
        host.systemctl("start", "--no-block", TRAIN)
        host.until("its program", lambda: host.program(TRAIN) == TRAIN)
        if late:
            host.until("the lock", lambda: run.train_pid.exists())
        host.machine.kill(host.machine.main_pid(TRAIN), signal.SIGTERM)
        assert host.until_state(TRAIN, lambda state: state[0] in ("inactive", "failed")) == CLEAN
        assert host.show(TRAIN, "NRestarts")["NRestarts"] == "0"


def test_a_finished_run_started_again(host: Host) -> None:
    run = host.make(max_steps=20)
    host.start()
    host.until_state(TRAIN, lambda state: state[0] == "inactive")
    assert host.status(run)["state"] == "finished"
    before = run.checkpoint(20).stat()
    since = host.machine.now()
    host.start()
    assert host.until_state(TRAIN, lambda state: state[0] not in ("active", "deactivating")) == CLEAN
    after = run.checkpoint(20).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert host.show(TRAIN, "NRestarts")["NRestarts"] == "0"
    assert host.machine.journal("-p", "warning", "-u", TRAIN, since=since) == []
