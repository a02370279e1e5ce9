"""The twin check with both processes: whatever happens to them, the run's bytes are those of a quiet one."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pytest

from andrea_rundir.entries import read
from andrea_rundir.names import RunDir
from harness import Trainer, entries, sidecar_diff, start, start_proxy, twin_diff, until, wait_step
from harness.twin import plan_in_force

LAST, CADENCE = 80, 10
PATIENT = {
    "run": {"plan_wait": 600.0},
    "optimizer": {"max_steps": LAST},
    "checkpoint": {"every": CADENCE, "keep_last": 2},
    "probe": {"every": 40},
}

Make = Callable[..., RunDir]


def caught_up(run: RunDir, step: int = LAST) -> Callable[[], bool]:
    return lambda: max((entry["step"] for entry in read(run.loss)), default=0) >= step


def finish(run: RunDir) -> None:
    """Both to the end, left alone."""
    with start_proxy(run) as proxy, start(run) as trainer:
        assert trainer.wait(120) == 0, trainer.said()
        until("the proxy has recorded all", caught_up(run))
        assert proxy.stop() == 0, proxy.said()


@pytest.fixture(scope="module")
def whole(make: Make) -> RunDir:
    """The run that nothing happened to."""
    run = make("whole", PATIENT)
    finish(run)
    assert [entry["step"] for entry in read(run.loss)] == list(range(1, LAST + 1))
    return run


def is_twin(run: RunDir, whole: RunDir) -> None:
    assert twin_diff(run, whole, LAST, cadence=CADENCE) == []
    assert sidecar_diff(run, whole) == []


STILL_AT_33: dict[str, object] = {"at": "andrea_train.loop:Loop._edge", "call": 33, "do": "STOP"}


def at(where: str, call: int, *, after: bool = False) -> dict[str, object]:
    return {"at": where, "call": call, "do": "KILL", "after": after}


RECORD = "andrea_rundir.lossfile:LossFile._write"
PLAN = "andrea_rundir.planfile:PlanFile.append"
FSYNC = "os:fsync"
RENAME = "os:rename"
STATE = "andrea_rundir.sidecars:save"
OBSERVE = "andrea_proxy.fold:Fold.observe"
# The proxy is hurt by one point a start, in this order, while one trainer goes on.
HURTS = [
    at(PLAN, 1),
    at(PLAN, 1, after=True),
    at(RECORD, 1),
    at(RECORD, 1, after=True),
    at(OBSERVE, 7),
    at(PLAN, 1),
    at(PLAN, 1, after=True),
    at(STATE, 1),
    at(STATE, 1, after=True),
    at(FSYNC, 7),
    at(FSYNC, 7, after=True),
]


def test_a_proxy_killed_at_chosen_points_leaves_no_trace(make: Make, whole: RunDir) -> None:
    run = make("points", PATIENT)
    with start(run) as trainer:
        for point in HURTS:
            with start_proxy(run, hurt=[point]) as proxy:
                assert proxy.wait() == -9, f"{point} was not reached: {proxy.said()}"
        with start_proxy(run) as proxy:
            assert trainer.wait(120) == 0, trainer.said()
            until("the proxy has recorded all", caught_up(run))
            assert proxy.stop() == 0, proxy.said()
    is_twin(run, whole)


@pytest.mark.parametrize("name", ["plan.jsonl", ".loss.json"])
def test_a_file_that_is_removed_under_both_is_made_again(name: str, make: Make, whole: RunDir) -> None:
    run = make(f"removed-{name.strip('.')}", PATIENT)
    with start(run, hurt=[STILL_AT_33]) as trainer, start_proxy(run) as proxy:
        until("the trainer stands still", trainer.frozen)
        (run.root / name).unlink()
        until("it is made again", (run.root / name).exists)
        trainer.signal(signal.SIGCONT)
        assert trainer.wait(120) == 0, trainer.said()
        until("the proxy has recorded all", caught_up(run))
        assert proxy.stop() == 0, proxy.said()
    assert twin_diff(run, whole, LAST, cadence=CADENCE) == []
    assert entries(run) == entries(whole)
    assert plan_in_force(run) == plan_in_force(whole)


def test_a_plan_that_is_removed_on_a_full_disk_is_waited_with(make: Make, whole: RunDir) -> None:
    run = make("removed-full", PATIENT)
    full = {"at": "andrea_rundir.planfile:write", "call": 1, "do": "ENOSPC", "times": 2}
    with start(run, hurt=[STILL_AT_33]) as trainer, start_proxy(run, hurt=[full]) as proxy:
        until("the trainer stands still", trainer.frozen)
        run.plan.unlink()
        until("it is made again", run.plan.exists)
        trainer.signal(signal.SIGCONT)
        assert trainer.wait(120) == 0, trainer.said()
        until("the proxy has recorded all", caught_up(run))
        assert proxy.stop() == 0, proxy.said()
    assert proxy.said().count("waits: No space left on device") == 1, "refused twice, said once"
    is_twin(run, whole)


def test_events_that_are_removed_under_both_cost_nothing_that_was_read(make: Make, whole: RunDir) -> None:
    run = make("removed-events", PATIENT)
    with start(run, hurt=[STILL_AT_33]) as trainer, start_proxy(run) as proxy:
        until("the trainer stands still", trainer.frozen)
        until("the proxy has read all", lambda: len(list(read(run.loss))) == 33)
        shutil.rmtree(run.events)
        trainer.signal(signal.SIGCONT)
        assert trainer.wait(120) == 0, trainer.said()
        until("the proxy has recorded all", caught_up(run))
        assert proxy.stop() == 0, proxy.said()
    assert "events/000001.jsonl was removed" in trainer.said()
    assert run.checkpoint(LAST).read_bytes() == whole.checkpoint(LAST).read_bytes()
    assert entries(run) == entries(whole) and plan_in_force(run) == plan_in_force(whole)


@pytest.mark.parametrize("seed", range(20))
def test_killed_and_stopped_at_random_instants(seed: int, make: Make, whole: RunDir) -> None:
    """One end of the trainer and two of the proxy, at random steps, by random signals, in random order."""
    run, rng = make(f"random-{seed}", PATIENT), np.random.default_rng(seed)
    whom = rng.permutation(["trainer", "proxy", "proxy"])
    steps = np.sort(rng.integers(0, LAST - 5, len(whom)))
    starters: dict[str, Callable[[RunDir], Trainer]] = {"trainer": start, "proxy": start_proxy}
    with ExitStack() as stack:
        alive = {name: stack.enter_context(starters[name](run)) for name in rng.permutation(["trainer", "proxy"])}
        for name, step in zip(whom, steps, strict=True):
            wait_step(run, int(step), 120)
            trainer_ended = alive["trainer"].process.poll() is not None
            if name == "trainer" and trainer_ended:
                continue
            number = [signal.SIGKILL, signal.SIGTERM][rng.integers(2)]
            alive[name].signal(number)
            assert alive[name].wait() in (0, -9), alive[name].said()
            alive[name] = stack.enter_context(starters[name](run))
        assert alive["trainer"].wait(120) == 0, alive["trainer"].said()
        until("the proxy has recorded all", caught_up(run))
        assert alive["proxy"].stop() == 0, alive["proxy"].said()
    is_twin(run, whole)
