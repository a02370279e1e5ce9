"""The machine goes down and comes up again while a run trains."""

from __future__ import annotations

from andrea_rundir import inspection
from andrea_rundir.events import read_back
from harness import wait_step
from harness.host import PATIENT, PROXY, TRAIN, Host


def test_poweroff_while_it_trains(host: Host) -> None:
    """A clean checkpoint on the way down; what is enabled trains on after the boot, as if nothing had happened."""
    run, whole = host.make(run=PATIENT), host.make(run=PATIENT, use=False)
    host.systemctl("enable", "--quiet", "--now", TRAIN)
    wait_step(run, 25)
    host.machine.shut_down()
    last = host.last_step(run)
    stopped = next(read_back(run.events))
    assert (stopped["event"], stopped["step"], stopped["reason"]) == ("stop", last, "sigterm")
    assert host.newest(run) == last
    inspection.inspect(run.checkpoint(last))
    host.machine.boot()
    assert host.machine.state_of(TRAIN) == ("active", "success")
    assert host.machine.state_of(PROXY) == ("active", "success")
    wait_step(run, last + 5)
    assert host.differences(run, whole) == []
