"""What goes wrong by itself: a kill, a hang, a run that must not go on, a program that dies at every start."""

from __future__ import annotations

import signal

from harness import twin_diff, until, wait_step
from harness.host import PROXY, TRAIN, Host

PATIENT = {"plan_wait": 30.0}  # no round is to fall back
SOON = "RestartSec=500ms"
ALERT = '#!/bin/sh\nlogger -t told "$1 $MONITOR_SERVICE_RESULT $MONITOR_EXIT_STATUS"\n'


def told(host: Host, since: str) -> list[str]:
    return [entry["MESSAGE"] for entry in host.machine.journal("-t", "told", since=since)]


def test_kill_9_of_either(host: Host) -> None:
    """The one is restarted, the other does not notice; the run is the one it would have been."""
    run, whole = host.make(run=PATIENT), host.make(run=PATIENT, use=False)
    host.change(f"{TRAIN}.service", SOON)
    host.start()
    assert host.machine.state_of(PROXY) == ("active", "success")
    proxy, trainer = host.machine.main_pid(PROXY), host.machine.main_pid(TRAIN)
    wait_step(run, 15)
    host.machine.kill(trainer, signal.SIGKILL)
    until("another trainer", lambda: host.machine.main_pid(TRAIN) not in (0, trainer))
    host.until_state(TRAIN, lambda state: state[0] == "active")
    assert host.machine.main_pid(PROXY) == proxy
    trainer = host.machine.main_pid(TRAIN)
    host.machine.kill(proxy, signal.SIGKILL)
    until("another proxy", lambda: host.machine.main_pid(PROXY) not in (0, proxy))
    host.until_state(PROXY, lambda state: state[0] == "active")
    assert host.show(PROXY, "NRestarts")["NRestarts"] == "1"
    assert host.machine.main_pid(TRAIN) == trainer
    wait_step(run, host.last_step(run) + 20)
    host.stop()
    step = sorted(step for step in run.checkpoints() if step % 10 == 0)[-2]  # the audit of the last one is owed
    host.whole(whole, step)
    assert twin_diff(run, whole, step, cadence=10) == []


def test_a_hung_trainer_is_aborted(host: Host) -> None:
    """Its stacks are in the journal, and another goes on."""
    run = host.make()
    host.change(f"{TRAIN}.service", SOON, "WatchdogSec=2s")
    host.start()
    since, pid = host.machine.now(), host.machine.main_pid(TRAIN)
    host.machine.kill(pid, signal.SIGSTOP)
    until("another trainer", lambda: host.machine.main_pid(TRAIN) not in (0, pid), 60)
    host.until_state(TRAIN, lambda state: state[0] == "active")
    messages = [str(entry["MESSAGE"]) for entry in host.machine.journal("-u", TRAIN, since=since)]
    assert any("Watchdog timeout" in message for message in messages)
    assert any("most recent call first" in message for message in messages), messages
    assert any("loop.py" in message for message in messages)
    wait_step(run, host.last_step(run) + 10)


def test_a_run_that_must_not_go_on(host: Host) -> None:
    """No usable checkpoint: failed at once, never tried again, the reason where people look, and somebody told."""
    run = host.make()
    run.checkpoint(10).write_bytes(b"spoilt")
    host.machine.write("/etc/andrea/alert", ALERT, 0o755)
    since = host.machine.now()
    assert host.run("systemctl", "start", TRAIN, check=False).returncode == 1
    assert host.machine.state_of(TRAIN) == ("failed", "exit-code")
    found = host.show(TRAIN, "ExecMainStatus", "NRestarts")
    assert found == {"ExecMainStatus": "78", "NRestarts": "0"}
    assert "no checkpoint of this run can be used" in host.systemctl("status", TRAIN, "--no-pager", check=False)
    errors = host.machine.journal("-p", "err", "-t", TRAIN, since=since)
    assert any("no checkpoint of this run can be used" in entry["MESSAGE"] for entry in errors)
    halts = host.machine.journal("ANDREA_EVENT=halt", since=since)
    assert [entry["ANDREA_STEP"] for entry in halts] == ["10"]
    until("the alert", lambda: told(host, since) != [])
    assert told(host, since) == ["andrea-train.service exit-code 78"]
    state = host.status(run)
    assert state["state"] == "halted" and "no checkpoint of this run can be used" in state["sentence"]


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
    host.hurt({"at": "andrea_service.signals:Signals.install", "call": 1, "do": "KILL"}, also=("RestartSec=100ms",))
    since = host.machine.now()
    assert host.run("systemctl", "start", TRAIN, check=False).returncode == 1
    until(
        "the limit", lambda: host.show(TRAIN, "ActiveState", "NRestarts") == {"ActiveState": "failed", "NRestarts": "5"}
    )
    messages = [str(entry["MESSAGE"]) for entry in host.machine.journal("-u", TRAIN, since=since)]
    assert any("Start request repeated too quickly" in message for message in messages)
    until("the alert", lambda: told(host, since) != [])
    assert [line.split()[0] for line in told(host, since)] == ["andrea-train.service"]
