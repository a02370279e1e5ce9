"""Real signals to real trainers: as early as can be, while it saves, samples, waits, and in floods."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea_rundir import digests, inspection
from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from harness import Trainer, start, until, wait_checkpoint, wait_step

Make = Callable[..., RunDir]

LONG = {"optimizer": {"max_steps": 100_000}, "checkpoint": {"every": 1000}, "probe": {"every": 1000}}


def newest_is_valid(run: RunDir) -> int:
    """The step of the newest checkpoint, after checking it as a stranger would: size, header, digest, values."""
    step, path = list(run.checkpoints().items())[-1]
    facts = inspection.inspect(path)
    assert facts.problem is None
    assert facts.step == step
    assert digests.read(run.sums)[path.name] == facts.digest
    return step


def last_event(run: RunDir) -> dict[str, object]:
    return list(read(run.events))[-1]


def ended_cleanly(trainer: Trainer, reason: str = "sigterm") -> int:
    """Exit 0, the newest checkpoint valid and of the very last step, the last event saying why."""
    assert trainer.wait() == 0, trainer.said()
    step = newest_is_valid(trainer.run)
    assert last_event(trainer.run) | {"time": ""} == {"event": "stop", "time": "", "step": step, "reason": reason}
    steps = [event["step"] for event in read(trainer.run.events) if event["event"] == "step"]
    assert max(steps, default=0) == step
    assert not trainer.run.train_pid.exists()
    return step


def save_by_usr1(trainer: Trainer) -> None:
    """One checkpoint more than that of the start."""
    wait_step(trainer.run, 5)
    trainer.signal(signal.SIGUSR1)
    until("a second checkpoint", lambda: len(trainer.run.checkpoints()) >= 2)


def test_usr1_saves_and_goes_on_term_saves_and_ends(make: Make) -> None:
    run = make("usr1", LONG)
    with start(run) as trainer:
        save_by_usr1(trainer)
        saved = newest_is_valid(run)
        wait_step(run, saved + 5)
        trainer.signal(signal.SIGTERM)
        assert ended_cleanly(trainer) > saved


def test_an_abort_shows_where_the_main_thread_stood(make: Make) -> None:
    """As a watchdog sends it to a frozen process. No thread but the main one is hit: see `leave_aborts`."""
    run = make("aborted", LONG)
    with start(run) as trainer:
        save_by_usr1(trainer)
        for task in Path(f"/proc/{trainer.pid}/task").iterdir():
            (mask,) = re.findall(r"SigBlk:\t(\w+)", (task / "status").read_text())
            assert bool(int(mask, 16) >> (signal.SIGABRT - 1) & 1) == (int(task.name) != trainer.pid), task
        trainer.signal(signal.SIGSTOP)
        time.sleep(0.1)
        trainer.signal(signal.SIGABRT)
        trainer.signal(signal.SIGCONT)
        assert trainer.wait() == -signal.SIGABRT
        assert "loop.py" in trainer.said()
        assert "Thread 0x" not in trainer.said(), "a thread that ran on can have torn its frames meanwhile: SIGSEGV"


def test_usr1_as_early_as_a_process_can_get_it(make: Make) -> None:
    """Sent before Python has run a line, and again all through the imports: not lost, and no harm done."""
    run = make("early", LONG)
    with start(run) as trainer:
        trainer.signal(signal.SIGUSR1)
        for _ in range(50):
            time.sleep(0.02)
            trainer.signal(signal.SIGUSR1)
        until("the checkpoint wished for at the start", lambda: any(run.checkpoints()) and max(run.checkpoints()) > 0)
        assert max(run.checkpoints()) < 1000
        trainer.signal(signal.SIGTERM)
        ended_cleanly(trainer)


@pytest.mark.parametrize("delay", [0.0, 0.3, 0.8])
def test_term_before_the_first_step_is_a_clean_end(make: Make, delay: float) -> None:
    run = make("term-early", LONG)
    with start(run) as trainer:
        time.sleep(delay)
        trainer.signal(signal.SIGTERM)
        assert trainer.wait() == 0, trainer.said()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_the_interpreter_is_taken_down_changes_nothing(number: signal.Signals) -> None:
    """All is saved and said by then; the system would kill the process, for its handlers are gone."""
    code = f"""
import os, sys
from andrea_service import signals
class Late:
    def __del__(self):
        os.kill(os.getpid(), {int(number)})
late = Late()
signals.Signals().install()
signals.ignore_stops()
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    early = code.replace("signals.ignore_stops()", "")
    assert subprocess.run([sys.executable, "-c", early], timeout=60).returncode == -number, "nothing was tested"


def test_a_hundred_usr1_in_a_row_are_one_wish(make: Make) -> None:
    run = make("flood", LONG)
    with start(run) as trainer:
        wait_step(run, 3)
        for _ in range(100):
            trainer.signal(signal.SIGUSR1)
        until("a checkpoint", lambda: len(run.checkpoints()) >= 2)
        trainer.signal(signal.SIGTERM)
        ended_cleanly(trainer)
    assert len([e for e in read(run.events) if e["event"] == "checkpoint"]) < 20


def test_usr1_to_the_whole_group_leaves_children_alive(make: Make) -> None:
    """`systemctl kill -s USR1` reaches every process of the unit: children started by the trainer inherit its mask."""
    run = make("group", LONG)
    child = {"at": "andrea_train.loop:Loop.run", "call": 1, "do": "CHILD"}
    with start(run, hurt=[child], new_group=True) as trainer:
        wait_step(run, 3)
        [pid] = children(trainer.pid)
        os.killpg(trainer.pid, signal.SIGUSR1)
        until("a checkpoint", lambda: len(run.checkpoints()) >= 2)
        assert children(trainer.pid) == [pid], "the child died of it"
        trainer.signal(signal.SIGTERM)
        ended_cleanly(trainer)
        os.killpg(trainer.pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "Z" not in line]


def test_term_twice_changes_nothing(make: Make) -> None:
    run = make("twice", LONG)
    with start(run) as trainer:
        wait_step(run, 3)
        for _ in range(3):
            trainer.signal(signal.SIGTERM)
        ended_cleanly(trainer)


WAITS = {
    "sampling": ("andrea_train.sampler:extend", 40),
    "the probe": ("andrea_train.probe:Probe.measure", 2),
    "a save": ("andrea_rundir.publish:_write_image", 2),
    "a digest": ("andrea_train.saver:Saver._digest", 2),
    "the first step": ("andrea_train.optimizer:AdamW.step", 1),
    "the first snapshot": ("andrea_train.state:Staging.snapshot", 1),
}


@pytest.mark.parametrize("number", ["TERM", "USR1"])
@pytest.mark.parametrize("where", WAITS)
def test_in_the_middle_of(where: str, number: str, make: Make) -> None:
    name, call = WAITS[where]
    run = make("middle", {"optimizer": {"max_steps": 40}})
    with start(run, hurt=[{"at": name, "call": call, "do": number}]) as trainer:
        if number == "TERM":
            assert ended_cleanly(trainer) < 40
        else:
            assert ended_cleanly(trainer, "finished") == 40
            assert trainer.said().count("Traceback") == 0


def test_term_during_sampling_breaks_it_off_and_it_is_made_up_for(make: Make) -> None:
    changes = {"optimizer": {"max_steps": 20}, "samples": {"tokens": 24}}
    run = make("owed", changes)
    term: dict[str, object] = {"at": "andrea_train.sampler:extend", "do": "TERM", "seconds": 0.5}
    with start(run, hurt=[{**term, "call": 30}]) as trainer:
        assert ended_cleanly(trainer) == 10
    assert [e["step"] for e in read(run.events) if e["event"] == "audit"] == [0]
    with start(run, hurt=[{**term, "call": 10}]) as trainer:
        assert ended_cleanly(trainer) == 10  # no step while a look is owed: it would never be taken
    with start(run) as trainer:
        ended_cleanly(trainer, "finished")
    assert [e["step"] for e in read(run.events) if e["event"] == "audit"] == [0, 10, 20]


def test_term_while_it_waits_for_space_for_events(make: Make) -> None:
    """Without a durable record no fallback round may start: it waits, says so, and still hears SIGTERM."""
    run = make("wait", LONG)
    full = {"at": "andrea_rundir.eventlog:EventLog.sync", "call": 3, "do": "FALSE", "times": 0}
    with start(run, hurt=[full]) as trainer:
        until("the pause", lambda: "paused" in trainer.said())
        trainer.signal(signal.SIGTERM)
        assert trainer.wait() in (0, 1), trainer.said()
    newest_is_valid(run)


def test_until_step_stops_there_and_is_a_no_op_past_it(make: Make) -> None:
    run = make("until")
    with start(run, "--until-step", "15") as trainer:
        assert ended_cleanly(trainer, "until-step") == 15
    assert [e["step"] for e in read(run.events) if e["event"] == "audit"] == [0, 10, 15]
    before = run.checkpoint(15).read_bytes()
    with start(run, "--until-step", "12") as trainer:
        assert ended_cleanly(trainer, "until-step") == 15
    assert run.checkpoint(15).read_bytes() == before


def test_int_is_as_term(make: Make) -> None:
    run = make("int", LONG)
    with start(run) as trainer:
        wait_step(run, 3)
        wait_checkpoint(run, 0)
        trainer.signal(signal.SIGINT)
        ended_cleanly(trainer, "sigint")
