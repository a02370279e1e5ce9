"""The twin check, the test above all others: a run that was hurt equals the run that was not, byte for byte."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from harness import Trainer, figures, start, twin_diff, until, wait_step

CADENCE = 10
LAST = 60
KEEP_TWO = {"checkpoint": {"every": CADENCE, "keep_last": 2}}

Point = dict[str, object]
Make = Callable[..., RunDir]


def at(where: str, call: int, do: str = "KILL", *, after: bool = False) -> Point:
    return {"at": where, "call": call, "do": do, "after": after}


SNAPSHOT = "andrea_train.state:Staging.snapshot"
WRITE = "andrea_rundir.publish:_write_image"
DIGEST = "andrea_train.saver:Saver._digest"
LINE = "andrea_rundir.digests:record"
PRUNE = "andrea_train.saver:Saver._prune"
FORGET = "andrea_rundir.digests:forget"
SAMPLE = "andrea_train.sampler:extend"
PROBE = "andrea_train.probe:Probe.measure"
UPDATE = "andrea_train.optimizer:AdamW.step"
EVENT = "andrea_rundir.eventlog:EventLog.append"

# Each line is one run, hurt by one point a start, in this order; the last start is left alone.
HURTS: dict[str, list[Point]] = {
    "signals": [at(UPDATE, 7, "TERM"), at(UPDATE, 4, "INT"), at(UPDATE, 16, "USR1"), at(UPDATE, 3, "USR1")],
    "saving": [at(SNAPSHOT, 3), at(WRITE, 2), at(WRITE, 1, after=True), at(DIGEST, 2), at(LINE, 2, after=True)],
    "fsync": [at("os:fsync", 12), at("os:fsync", 17, after=True), at("os:fsync", 9), at("os:fsync", 21)],
    "rename": [at("os:rename", 6), at("os:rename", 4, after=True), at("os:rename", 5), at("os:rename", 3, after=True)],
    "looking": [at(PROBE, 2), at(SAMPLE, 30), at(EVENT, 20), at(UPDATE, 15), at(SAMPLE, 5)],
    "pruning": [at(FORGET, 1), at(FORGET, 1, after=True), at(UPDATE, 2), at(PRUNE, 1)],
}


def finish(trainer: Trainer, timeout: float = 150) -> None:
    with trainer:
        assert trainer.wait(timeout) == 0, trainer.said()


@pytest.fixture(scope="module")
def whole(make: Make) -> RunDir:
    """The run that nothing happened to."""
    run = make("whole", KEEP_TWO)
    finish(start(run))
    return run


def hurt_and_finish(run: RunDir, points: list[Point], timeout: float = 150, **how: Any) -> int:
    """Start once a point, then once more to the end; how many of the points were reached."""
    reached = 0
    for point in points:
        with start(run, hurt=[point], **how) as trainer:
            code = trainer.wait(timeout)
        assert code in (0, -9), trainer.said()
        reached += code == -9 or point["do"] != "KILL"
    finish(start(run, **how), timeout)
    return reached


@pytest.mark.parametrize("name", HURTS)
def test_a_hurt_run_equals_its_twin(name: str, make: Make, whole: RunDir) -> None:
    run = make(name, KEEP_TWO)
    reached = hurt_and_finish(run, HURTS[name])
    assert reached == len(HURTS[name]), "a point was never reached: the test tests less than it says"
    assert twin_diff(run, whole, LAST, cadence=CADENCE) == []


def starts(run: RunDir) -> list[int]:
    """Where the run was begun and resumed."""
    return [event["step"] for event in read(run.events) if event["event"] == "start"] if run.events.exists() else []


def test_killed_at_random_instants(make: Make, whole: RunDir) -> None:
    """At no chosen place: right after the start, then again and again a few steps past the newest checkpoint."""
    run, rng = make("random", KEEP_TWO), np.random.default_rng(7)
    slowly: Point = {"at": "andrea_train.loop:Loop._step", "call": 1, "times": 0, "do": "SLEEP", "seconds": 0.03}
    for step in (0, 11, 22, 31, 41):
        before = len(starts(run))
        with start(run, hurt=[slowly]) as trainer:
            until("it begins", lambda step=step, before=before: not step or len(starts(run)) > before)
            wait_step(run, step + int(rng.integers(0, 9)) if step else -1)
            time.sleep(float(rng.uniform(0.0, 0.02)))
            trainer.kill()
    finish(start(run))
    assert twin_diff(run, whole, LAST, cadence=CADENCE) == []
    resumed = starts(run)
    assert len(set(resumed)) >= 3, f"it was resumed at {resumed}: too little happened before the kills"


VARIANTS: dict[str, dict[str, Any]] = {
    "accumulation": {"optimizer": {"micro_batch": 2}},
    "bf16": {"run": {"precision": "bf16"}},
    "two-threads": {"run": {"threads": 2}},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_arithmetic(name: str, make: Make) -> None:
    changes = {**KEEP_TWO, **VARIANTS[name]}
    quiet, hurt = make(f"{name}-whole", changes), make(f"{name}-hurt", changes)
    finish(start(quiet))
    hurt_and_finish(hurt, [at(UPDATE, 23), at(SAMPLE, 40)])
    assert twin_diff(hurt, quiet, LAST, cadence=CADENCE) == []


def test_skipped_steps(make: Make, tmp_path: Path) -> None:
    """Junk in the middle of easy text makes losses jump; with spike = "skip" those updates are not applied."""
    junk = np.random.default_rng(1).integers(33, 127, 30).astype(np.uint8).tobytes().decode()
    easy = "to be or not to be that is the question " * 300
    (tmp_path / "easy.txt").write_text(easy + junk + easy)
    changes = {
        "optimizer": {"max_steps": 400, "lr": 1e-2},
        "checkpoint": {"every": 20},
        "guard": {"spike": "skip"},
    }
    arms = {"easy": tmp_path / "easy.txt"}
    quiet, hurt = make("skip-whole", changes, arms=arms), make("skip-hurt", changes, arms=arms)
    finish(start(quiet))
    skipped = [step for step, figure in figures(quiet).items() if figure["flags"]]
    assert skipped
    hurt_and_finish(hurt, [at(UPDATE, skipped[0] + 1), at(UPDATE, 15), at(UPDATE, 29)])
    assert twin_diff(hurt, quiet, 400, cadence=20) == []


def test_compiled_in_deterministic_mode(make: Make, tmp_path: Path) -> None:
    """torch.compile on the CPU, audits and probes between the steps, each run with an empty compiler cache."""
    changes = {**KEEP_TWO, "run": {"compile": True}}
    quiet, hurt = make("compiled-whole", changes), make("compiled-hurt", changes)
    finish(start(quiet, env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "one")}), timeout=500)
    hurt_and_finish(hurt, [at(UPDATE, 23)], timeout=500, env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "two")})
    assert twin_diff(hurt, quiet, LAST, cadence=CADENCE) == []
