"""What goes wrong by itself: a kill, a hang, a run that must not go on, a program that dies at every start."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from andrea_rundir.names import RunDir
from harness import wait_step
from harness.host import PATIENT, PROXY, TRAIN, Host

SOON = "RestartSec=500ms"
# What systemd's own messages are about (systemd.io/CATALOG).
PROCESS_EXITED, UNIT_STARTS = "98e322203f7a4ed290d09fe03c09fe15", "7d4958e842da4a758f6c1cdc7b36dcc5"
ALERT = '#!/bin/sh\nlogger -t told "$1 $MONITOR_SERVICE_RESULT $MONITOR_EXIT_STATUS"\n'


def told(host: Host, since: str) -> list[str]:
    """The alerts about the trainer; the proxy may have its own reasons."""
    words = [entry["MESSAGE"] for entry in host.machine.journal("-t", "told", since=since)]
    return [text for text in words if text.startswith(f"{TRAIN}.service")]


def test_kill_9_of_either(host: Host) -> None:
    """The one is restarted, the other does not notice; the run is the one it would have been."""
    run, whole = host.make(run=PATIENT), host.make(run=PATIENT, use=False)
    host.change(f"{TRAIN}.service", SOON)
    host.start()
    assert host.machine.state_of(PROXY) == ("active", "success")
    proxy, trainer = host.machine.main_pid(PROXY), host.machine.main_pid(TRAIN)
    wait_step(run, 15)
    host.machine.kill(trainer, signal.SIGKILL)
    host.until("another trainer", lambda: host.machine.main_pid(TRAIN) not in (0, trainer))
    host.until_state(TRAIN, lambda state: state[0] == "active")
    assert host.machine.main_pid(PROXY) == proxy
    trainer = host.machine.main_pid(TRAIN)
    host.machine.kill(proxy, signal.SIGKILL)
    host.until("another proxy", lambda: host.machine.main_pid(PROXY) not in (0, proxy))
    host.until_state(PROXY, lambda state: state[0] == "active")
    assert host.show(PROXY, "NRestarts")["NRestarts"] == "1"
    assert host.machine.main_pid(TRAIN) == trainer
    wait_step(run, host.last_step(run) + 5)
    assert host.differences(run, whole) == []


def test_the_proxy_is_back_within_a_second(host: Host) -> None:
    """From systemd's word that it died to the word that it is started again, by the clock of systemd."""
    host.make()
    host.start(PROXY)
    since = host.machine.now()
    for _ in range(3):
        pid = host.machine.main_pid(PROXY)
        host.machine.kill(pid, signal.SIGKILL)
        host.until("another proxy", lambda pid=pid: host.machine.main_pid(PROXY) not in (0, pid))
    words = host.machine.journal("-u", PROXY, "_PID=1", since=since)
    died, back = (
        [int(word["_SOURCE_REALTIME_TIMESTAMP"]) for word in words if word.get("MESSAGE_ID") == kind]
        for kind in (PROCESS_EXITED, UNIT_STARTS)
    )
    waits = [(end - start) / 1e6 for start, end in zip(died, back, strict=True)]
    # A busy machine lets systemd itself come late now and then; a unit that waits too long is late every time.
    assert len(waits) == 3 and 0 < min(waits) < 1, waits


def test_a_hung_trainer_is_aborted(host: Host) -> None:
    """Its stack is in the journal, and another goes on."""
    run = host.make()
    host.change(f"{TRAIN}.service", SOON, "WatchdogSec=5s")
    host.start()
    since, pid = host.machine.now(), host.machine.main_pid(TRAIN)
    host.machine.kill(pid, signal.SIGSTOP)
    host.until("another trainer", lambda: host.machine.main_pid(TRAIN) not in (0, pid), 60)
    host.until_state(TRAIN, lambda state: state[0] == "active")
    messages = [str(entry["MESSAGE"]) for entry in host.machine.journal("-u", TRAIN, since=since)]
    assert any("Watchdog timeout" in message for message in messages)
    assert any("most recent call first" in message for message in messages), messages
    assert any("loop.py" in message for message in messages), messages
    wait_step(run, host.last_step(run) + 10)


def diverging(host: Host) -> tuple[RunDir, str]:
    wild = {"lr": 1e9, "min_lr": 0.0, "warmup_steps": 5, "grad_clip": 1e6}
    return host.make(optimizer=wild), "diverged: 8 updates in a row had a loss or gradient that is not finite"


def spoilt(host: Host) -> tuple[RunDir, str]:
    run = host.make()
    run.checkpoint(10).write_bytes(b"spoilt")
    return run, "no checkpoint of this run can be used"


def misconfigured(host: Host) -> tuple[RunDir, str]:
    run = host.make()
    run.run_toml.write_text(run.run_toml.read_text().replace("warmup_steps", "warmup"))
    return run, "unknown key warmup"


@pytest.mark.parametrize(
    ("made", "trains", "halted"), [(diverging, True, "9"), (spoilt, False, "10"), (misconfigured, False, None)]
)
def test_a_run_that_must_not_go_on(
    host: Host, made: Callable[[Host], tuple[RunDir, str]], trains: bool, halted: str | None
) -> None:
    """Failed at once, never tried again, the reason where people look, and somebody told."""
    run, reason = made(host)
    host.machine.write("/etc/andrea/alert", ALERT, 0o755)
    since = host.machine.now()
    assert host.run("systemctl", "start", TRAIN, check=False).returncode == (0 if trains else 1)
    assert host.until_state(TRAIN, lambda state: state[0] != "active") == ("failed", "exit-code")
    found = host.show(TRAIN, "ExecMainStatus", "NRestarts")
    assert found == {"ExecMainStatus": "78", "NRestarts": "0"}
    shown = host.systemctl("status", TRAIN, "--no-pager", check=False)
    assert reason in shown
    errors = host.machine.journal("-p", "err", "-t", TRAIN, since=since)
    assert any(reason in entry["MESSAGE"] for entry in errors)
    host.until("the alert", lambda: told(host, since) != [])
    assert told(host, since) == [f"{TRAIN}.service exit-code 78"]
    halts = [entry["ANDREA_STEP"] for entry in host.machine.journal("ANDREA_EVENT=halt", since=since)]
    if halted is None:  # nothing of the run was touched
        assert halts == []
    else:
        assert halts == [halted] and f'Status: "halted after step {halted}: {reason}' in shown
        state = host.status(run)
        assert state["state"] == "halted" and reason in state["sentence"]


def test_nobody_chose_a_run(host: Host) -> None:
    host.machine.write("/etc/andrea/andrea.conf", "")
    since = host.machine.now()
    assert host.run("systemctl", "start", TRAIN, check=False).returncode == 1
    assert host.show(TRAIN, "ExecMainStatus", "NRestarts") == {"ExecMainStatus": "2", "NRestarts": "0"}
    assert any("andrea use RUN" in entry["MESSAGE"] for entry in host.machine.journal("-t", TRAIN, since=since))


def test_five_crashes(host: Host) -> None:
    """The limit of the shipped unit does trip, it is said so, and somebody is told, once."""
    host.make()
    host.machine.write("/etc/andrea/alert", ALERT, 0o755)
    # So slowly that systemd's own limit (5 starts in 10 s) would let it go on for ever.
    host.hurt({"at": "andrea_service.signals:Signals.install", "call": 1, "do": "KILL"}, also=("RestartSec=2200ms",))
    since = host.machine.now()
    assert host.run("systemctl", "start", TRAIN, check=False).returncode == 1
    host.until(
        "the limit", lambda: host.show(TRAIN, "ActiveState", "NRestarts") == {"ActiveState": "failed", "NRestarts": "5"}
    )
    messages = [str(entry["MESSAGE"]) for entry in host.machine.journal("-u", TRAIN, since=since)]
    assert any("Start request repeated too quickly" in message for message in messages)
    host.until("the alert", lambda: told(host, since) != [])
    assert [line.split()[0] for line in told(host, since)] == [f"{TRAIN}.service"]
