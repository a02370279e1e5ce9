"""What `journalctl` finds."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from statistics import quantiles

from andrea_rundir.events import Event, read
from andrea_rundir.names import RunDir, checkpoint_name
from harness import wait_step
from harness.host import CADENCE, TRAIN, Host
from harness.machine import STATE

# A thousand lines a second, in the bursts of a flood.
BURSTS, LINES, SECONDS = 5, 1000, 1.0


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
    """At a thousand lines a second nothing is dropped, and steps take no longer; nor does training wait for a journal
    that stands still meanwhile."""
    run = host.make()
    how = {"bursts": BURSTS, "lines": LINES, "seconds": SECONDS}
    host.hurt({"at": "andrea_train.loop:Loop._step", "call": 100, "do": "FLOOD", **how})
    with strict_journal(host):
        since = host.machine.now()
        host.start()
        host.until("the flood", lambda: host.machine.journal(*flooded(0, 0), since=since) != [])
        with stopped(host, "systemd-journald"):
            time.sleep(SECONDS)  # its socket takes a few hundred lines
            wait_step(run, host.last_step(run) + 2 * CADENCE)  # two checkpoints, each with lines of its own
        host.until("its end", lambda: host.machine.journal(*flooded(BURSTS - 1, LINES - 1), since=since) != [], 60)
        host.stop()
        found = host.machine.journal("ANDREA_EVENT=flood", since=since)
        assert [(int(entry["ANDREA_BURST"]), int(entry["ANDREA_LINE"])) for entry in found] == [
            (burst, line) for burst in range(BURSTS) for line in range(LINES)
        ]
        assert host.machine.journal("ANDREA_EVENT=dropped", since=since) == []
    calm, busy = paces(run, [float(entry["ANDREA_AT"]) for entry in found])
    assert busy < 1.5 * calm, (calm, busy)


def flooded(burst: int, line: int) -> list[str]:
    """What finds that one line."""
    return ["ANDREA_EVENT=flood", f"ANDREA_BURST={burst}", f"ANDREA_LINE={line}"]


def paces(run: RunDir, at: list[float]) -> tuple[float, float]:
    """Seconds a step in the silences and in the bursts of a flood whose lines were written `at` these times.

    They alternate, so whatever else the machine does meets both alike; and the lower quartile of each: a flood is in
    every step of a burst, a neighbour on the same processor in some.
    """
    bursts = [(at[first], at[first + LINES - 1]) for first in range(0, len(at), LINES)]
    silences = [(end, begin) for (_, end), (begin, _) in pairwise(bursts)]
    steps = [event for event in read(run.events) if event["event"] == "step"]

    def pace(spans: list[tuple[float, float]]) -> float:
        within = [event["seconds"] for event in steps if any(a < seconds(event) < b for a, b in spans)]
        return quantiles(within)[0]

    return pace(silences), pace(bursts)


def seconds(event: Event) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


@contextmanager
def strict_journal(host: Host) -> Iterator[None]:
    """A journal that lets nobody write more than a few lines, unless the unit says otherwise."""
    drop_in = "/etc/systemd/journald.conf.d/strict.conf"
    host.machine.write(drop_in, "[Journal]\nRateLimitIntervalSec=1h\nRateLimitBurst=50\n")
    host.systemctl("restart", "systemd-journald")
    try:
        yield
    finally:
        (host.machine.root / drop_in.lstrip("/")).unlink()
        host.systemctl("restart", "systemd-journald")


@contextmanager
def stopped(host: Host, unit: str) -> Iterator[None]:
    """The unit's process stands still."""
    pid = host.machine.main_pid(unit)
    host.machine.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        host.machine.kill(pid, signal.SIGCONT)
