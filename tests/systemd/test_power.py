"""The machine goes down and comes up again while a run trains."""

from __future__ import annotations

from andrea_rundir import checkpoint
from andrea_rundir.events import read_back
from harness import twin_diff, wait_step
from harness.host import PROXY, TRAIN, Host


def test_poweroff_while_it_trains(host: Host) -> None:
    """A clean checkpoint on the way down; what is enabled trains on after the boot, as if nothing had happened."""
    run, whole = host.make(run={"plan_wait": 30.0}), host.make(run={"plan_wait": 30.0}, use=False)
    host.systemctl("enable", "--quiet", "--now", TRAIN)
    wait_step(run, 25)
    host.machine.shut_down()
    last = host.last_step(run)
    stopped = next(read_back(run.events))
    assert (stopped["event"], stopped["step"], stopped["reason"]) == ("stop", last, "sigterm")
    assert host.newest(run) == last
    checkpoint.inspect(run.checkpoint(last))
    host.machine.boot()
    assert host.machine.state_of(TRAIN) == ("active", "success")
    assert host.machine.state_of(PROXY) == ("active", "success")
    wait_step(run, last + 25)
    host.stop()
    step = sorted(step for step in run.checkpoints() if step % 10 == 0)[-2]  # the audit of the last one is owed
    assert step > last
    host.whole(whole, step)
    assert twin_diff(run, whole, step, cadence=10) == []
