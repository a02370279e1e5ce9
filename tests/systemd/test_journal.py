"""What `journalctl` finds."""

from __future__ import annotations

import time
from statistics import median

from andrea_rundir.events import read
from andrea_rundir.names import RunDir, checkpoint_name
from harness import until, wait_step
from harness.host import TRAIN, Host
from harness.machine import STATE

LINES, SECONDS = 5000, 5.0


def test_fields_and_priorities(host: Host) -> None:
    """Step, run and path of every checkpoint; and a healthy run gives no reason to worry."""
    since = host.machine.now()
    run = host.make(run={"plan_wait": 30.0, "name": "journalled"})
    host.start()
    wait_step(run, 35)
    host.stop()
    saved = [event for event in read(run.events) if event["event"] == "checkpoint"]
    found = host.machine.journal("ANDREA_EVENT=checkpoint", since=since)
    assert [int(entry["ANDREA_STEP"]) for entry in found] == [event["step"] for event in saved]
    assert {entry["ANDREA_RUN"] for entry in found} == {"journalled"}
    paths = [f"{STATE}/{run.root.name}/{checkpoint_name(event['step'])}" for event in saved]
    assert [entry["ANDREA_PATH"] for entry in found] == paths
    assert len({entry["MESSAGE_ID"] for entry in found}) == 1
    assert {entry["_SYSTEMD_UNIT"] for entry in found} == {f"{TRAIN}.service"}
    alarming = host.machine.journal("-p", "warning", "-u", "andrea*", since=since)
    assert [entry["MESSAGE"] for entry in alarming] == []


def test_a_flood(host: Host) -> None:
    """At a thousand lines a second nothing is dropped, and the training does not wait for the journal."""
    run = host.make(checkpoint={"every": 100_000}, probe={"every": 100_000})
    host.hurt({"at": "andrea_train.loop:Loop._step", "call": 200, "do": "FLOOD", "lines": LINES, "seconds": SECONDS})
    since = host.machine.now()
    host.start()
    flood = ("ANDREA_EVENT=flood",)
    until("the flood", lambda: len(host.machine.journal(*flood, since=since)) > 0)
    time.sleep(SECONDS)
    until("its end", lambda: len(host.machine.journal(*flood, since=since)) == LINES, 30)
    wait_step(run, host.last_step(run) + 200)
    host.stop()
    assert host.machine.journal("ANDREA_EVENT=dropped", since=since) == []
    calm, flooded = paces(run, 200)
    assert flooded < 1.7 * calm, (calm, flooded)


def paces(run: RunDir, at: int) -> tuple[float, float]:
    """Median seconds a step: without the flood, that is before step `at` and after its end, and in it."""
    calm, flooded, spent = [], [], 0.0
    for event in read(run.events):
        if event["event"] == "step" and event["step"] >= 50:
            spent += event["seconds"] if event["step"] >= at else 0.0
            (flooded if 0 < spent < SECONDS else calm).append(event["seconds"])
    return median(calm), median(flooded)
