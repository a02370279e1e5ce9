"""`andrea checkpoint` and `andrea stop` against a process that holds the lock and answers as it is told to.

What a real trainer answers is for the trainer's tests; here it is how the command waits, and what for.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from andrea_rundir.names import RunDir
from harness.commands import Andrea, Tell

HOLDER = """
import os, signal, sys, time
from pathlib import Path
from andrea_rundir import digests
from andrea_rundir.eventlog import EventLog
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_service import identity
run, manner = RunDir(Path(sys.argv[1])), sys.argv[2]
both = {signal.SIGUSR1, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, both)
lock = Lock.acquire(run.train_lock, identity.me())
log = EventLog(run.events)
if manner != "booting":
    log.append("start", step=5, attempt=1, furthest=0)
def save(step):
    run.checkpoint(step).write_bytes(b"state %d" % step)
    digests.record(run.sums, run.checkpoint(step).name, "%064d" % step)
    log.append("checkpoint", step=step, file=run.checkpoint(step).name, digest="%064d" % step, reason="signal")
if manner not in ("booting", "starting"):
    for step in range(6, 9):
        log.append("step", step=step, loss=1.0, tokens=1, seconds=0.1)
print("ready", flush=True)
while True:
    got = signal.sigwait(both)
    if got == signal.SIGUSR1:
        if manner == "dies":
            os._exit(9)
        if manner in ("booting", "starting"):
            save(6)
        if manner == "answers":
            save(7)  # was under way when the signal came: not what was asked for
            log.append("warning", step=8, what="save failed", detail="disk full")
            time.sleep(0.3)
            save(8)
    elif manner != "stubborn":
        if manner == "halts":
            log.append("halt", step=8, reason="diverged")
        elif manner != "vanishes":
            time.sleep(0.3)
            save(8)
            log.append("stop", step=8, reason="sigterm")
        log.close()
        os._exit(0)
"""


@pytest.fixture
def hold(made_up: RunDir) -> Iterator[Callable[..., None]]:
    """Starts the holder of the made-up run's lock; ends it after the test."""
    children: list[subprocess.Popen[str]] = []

    def start(manner: str) -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(made_up.root), manner],
            stdout=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdout is not None and child.stdout.readline() == "ready\n"

    yield start
    for child in children:
        child.kill()
        child.communicate()


def test_a_checkpoint_is_waited_for(andrea: Andrea, made_up: RunDir, hold: Callable[..., None]) -> None:
    hold("answers")
    done = andrea("checkpoint", made_up.root)
    assert done.code == 0
    assert done.out == f"{made_up.checkpoint(8)}\nsha256 {8:064d}\n"
    assert done.err.count("save failed: disk full") == 1  # what happened meanwhile is said


def test_and_kept(andrea: Andrea, made_up: RunDir, hold: Callable[..., None]) -> None:
    hold("answers")
    found = andrea("checkpoint", made_up.root, "--keep", "--json").json
    assert found["path"] == str(made_up.kept / "step_000008.bin") and found["kept"] is True
    assert (made_up.kept / "step_000008.bin").read_bytes() == b"state 8"
    assert "step_000008.bin" in made_up.sums.read_text()


@pytest.mark.parametrize("manner", ["booting", "starting"])
def test_a_run_that_is_starting_may_be_asked(
    andrea: Andrea, made_up: RunDir, tell: Tell, hold: Callable[..., None], manner: str
) -> None:
    """It goes on from before the step that the process before it had reached."""
    tell([{"event": "step", "time": 1_000_000_000.0, "step": 50, "loss": 1.0, "tokens": 1, "seconds": 0.1}])
    hold(manner)
    assert andrea("checkpoint", made_up.root, "--json").json["step"] == 6


def test_it_ends_while_waited_for(andrea: Andrea, made_up: RunDir, hold: Callable[..., None]) -> None:
    hold("dies")
    done = andrea("checkpoint", made_up.root)
    assert done.code == 1 and "the run ended before the checkpoint was made" in done.err


def test_time_is_up(andrea: Andrea, made_up: RunDir, hold: Callable[..., None]) -> None:
    hold("stubborn")
    done = andrea("checkpoint", made_up.root, "--timeout", "0.3")
    assert done.code == 1 and "no checkpoint within 0 s" in done.err and "it may still come" in done.err
    done = andrea("stop", made_up.root, "--timeout", "0.3")
    assert done.code == 1 and "has not ended within" in done.err


def test_stop_waits_for_the_end(andrea: Andrea, made_up: RunDir, hold: Callable[..., None]) -> None:
    hold("answers")
    done = andrea("stop", made_up.root)
    assert done.code == 0
    assert "stopped as asked" in done.out and f"last checkpoint: {made_up.checkpoint(8)}" in done.out
    assert f"start again: andrea-train --run {made_up.root}\n" in done.out
    again = andrea("stop", made_up.root, "--json")
    assert again.code == 0 and again.json["state"] == "stopped"


@pytest.mark.parametrize(("manner", "said"), [("halts", "diverged"), ("vanishes", "without a word")])
def test_another_end_is_no_success(
    andrea: Andrea, made_up: RunDir, hold: Callable[..., None], manner: str, said: str
) -> None:
    hold(manner)
    done = andrea("stop", made_up.root)
    assert done.code == 1 and "it ended, but not as asked" in done.err and said in done.err


def test_nobody_is_there(andrea: Andrea, made_up: RunDir) -> None:
    done = andrea("checkpoint", made_up.root)
    assert done.code == 1 and "not signalled" in done.err and "never started" in done.err
    done = andrea("stop", made_up.root)
    assert done.code == 0 and "never started" in done.out and "last checkpoint: none" in done.out


def test_a_lock_of_someone_else_is_left_alone(andrea: Andrea, made_up: RunDir, hold: Callable[..., None]) -> None:
    hold("answers")
    with open(made_up.train_lock, "r+") as file:
        file.write('{"pid": 1, "start_ticks": 1, "pid_namespace": 1}\n')
    for verb in ("stop", "checkpoint"):
        done = andrea(verb, made_up.root)
        assert done.code == 1 and "the lock is held, but" in done.err
