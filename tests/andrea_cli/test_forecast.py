from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from andrea_cli import forecast
from andrea_rundir import config
from andrea_rundir.policy import parse
from andrea_rundir.retention import doomed

MEASURED = {
    "step_seconds": 2.0,
    "round_seconds": 0.5,
    "edge_seconds": 10.0,
    "probe_seconds": 7.0,
    "save_seconds": 1.0,
    "start_seconds": 4.0,
    "event_bytes": {
        "step": 300.0,
        "snapshot": 900.0,
        "checkpoint": 200.0,
        "audit": 5000.0,
        "round": 700.0,
        "probe": 150.0,
    },
}


def settings(**sections: dict[str, Any]) -> config.RunConfig:
    return config.build({"optimizer": {"max_steps": 1000, "warmup_steps": 10}, **sections}, "test")


def test_time_is_steps_and_all_that_comes_between() -> None:
    times = forecast.times(settings(), MEASURED, 0)
    # 1000 steps, 50 rounds of which 10 begin at a checkpoint, one probe.
    assert (times.steps, times.checkpoints, times.probes, times.start) == (2000 + 40 * 0.5, 100 + 1, 7, 4)
    assert times.total == 2132
    half = forecast.times(settings(), MEASURED, 500)
    assert (half.steps, half.checkpoints) == (1000 + 20 * 0.5, 50 + 1)
    odd = forecast.times(settings(optimizer={"max_steps": 1010, "warmup_steps": 10}), MEASURED, 0)
    assert odd.checkpoints == 11 * 10 + 1  # the last one lies off the cadence


KEPT = [(1000, 100, 10, 0), (1010, 100, 2, 500), (90, 20, 3, 40), (5000, 10, 5, 100)]


@pytest.mark.parametrize(("last", "every", "keep_last", "keep_every"), KEPT)
def test_files_kept_are_those_that_retention_leaves_step_by_step(
    last: int, every: int, keep_last: int, keep_every: int
) -> None:
    run = settings(
        optimizer={"max_steps": last, "warmup_steps": 1},
        checkpoint={"every": every, "keep_last": keep_last, "keep_every": keep_every},
        probe={"every": every},
    )
    there: list[int] = []
    for step in [*range(0, last + 1, every), *([last] if last % every else [])]:
        there.append(step)
        rules = {"every": every, "keep_last": keep_last, "keep_every": run.checkpoint.keep_every_steps}
        gone = doomed(there, **rules, best=None, protected=(), regressed=False)
        there = [s for s in there if s not in gone]
    assert forecast.kept(run) - len(there) in (0, 1)  # and the best one


def test_disk_and_writes() -> None:
    run = settings(model={"preset": "andrea-12m"})
    disk = forecast.disk(run, MEASURED, 86400.0)
    assert disk["checkpoint"] == 153_363_464
    assert disk["kept_count"] == 11 and disk["kept"] == 11 * disk["checkpoint"]  # all: 0, 100, ..., 1000
    assert disk["peak"] == 12 * disk["checkpoint"]
    assert disk["history"] == 1000 * 300 + 50 * 700 + 11 * (900 + 200 + 5000) + 150
    assert disk["a_day"] == pytest.approx(11 * disk["checkpoint"] + disk["history"])
    assert forecast.reach(run) == {"all": 900, "tenths_apart": 1000, "tenths": 1000, "for_ever_apart": 10_000}


def test_epochs_follow_priors_phases_and_limits() -> None:
    text = '[arms.a]\npath = "a"\nprior = 3.0\n[arms.b]\npath = "b"\nmax_epochs = 2.0\n'
    run = settings(model={"preset": "andrea-tiny"})  # 1000 steps of 8 sequences of 256 tokens
    windows = {"a": 257, "b": 256 * 100 + 1}  # 1 and 100
    assert forecast.epochs(run, parse(text, "policy", Path("/")), windows) == pytest.approx({"a": 7800, "b": 2})
    text = text.replace("max_epochs = 2.0\n", "")
    assert forecast.epochs(run, parse(text, "policy", Path("/")), windows) == pytest.approx({"a": 6000, "b": 20})
