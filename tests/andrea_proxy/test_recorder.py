"""The recorder: what it makes of steps whose neighbours were lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from andrea_proxy.recorder import Recorder
from andrea_rundir.lossfile import LossFile

Event = dict[str, Any]


def step(number: int, loss: float = 1.0) -> Event:
    figures = {"arms": {}, "lr": 1.0, "grad_norm": 1.0, "tokens": 1, "seconds": 0.0, "policy": "0-a", "flags": []}
    return {"event": "step", "time": f"t{number}", "step": number, "loss": loss, **figures}


def start(number: int) -> Event:
    return {"event": "start", "step": number}


def checkpoint(number: int) -> Event:
    return {"event": "checkpoint", "step": number}


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(LossFile(tmp_path / ".loss.json"))


def recorded(recorder: Recorder, *events: Event) -> list[int]:
    """The steps that are on record once the events were taken, in order."""
    assert recorder.take(events) == []
    found = []
    while entries := recorder.flush():
        found += [entry["step"] for entry in entries]
    return found


def test_steps_behind_a_hole_wait(recorder: Recorder) -> None:
    assert recorded(recorder, start(0), step(1), step(3), step(4)) == [1]


def test_a_power_cut_made_the_hole_they_are_trained_again(recorder: Recorder) -> None:
    assert recorded(recorder, start(0), step(1), step(3), step(4)) == [1]
    assert recorded(recorder, start(0), step(1), step(2), step(3), step(4), step(5)) == [2, 3, 4, 5]
    whole = [step(n) for n in range(1, 6)]
    assert recorder.loss.at(4) is not None
    assert [recorder.loss.at(n)["loss"] for n in range(1, 6)] == [s["loss"] for s in whole]  # type: ignore[index]


def test_a_checkpoint_proves_that_the_hole_is_damage(recorder: Recorder) -> None:
    assert recorded(recorder, start(0), step(1), step(3), step(4), step(5)) == [1]
    assert recorded(recorder, checkpoint(1), step(6)) == []
    assert recorded(recorder, checkpoint(4)) == [3, 4, 5, 6]
    assert recorded(recorder, step(7)) == [7]


def test_two_holes_one_of_them_damage(recorder: Recorder) -> None:
    assert recorded(recorder, start(0), step(1), step(3), step(5), checkpoint(3)) == [1, 3]
    assert recorded(recorder, start(3), step(4), step(5)) == [4, 5]


def test_the_first_steps_are_lost(recorder: Recorder) -> None:
    assert recorded(recorder, step(2), step(3)) == []
    assert recorded(recorder, start(0), step(1), step(2)) == [1, 2]


def test_a_history_that_begins_elsewhere(recorder: Recorder) -> None:
    assert recorded(recorder, start(100), step(101), step(102)) == [101, 102]


def test_what_comes_twice_after_a_failed_sync_is_no_hole(recorder: Recorder) -> None:
    assert recorded(recorder, start(0), step(1), step(2), step(3), step(2), step(3), step(4)) == [1, 2, 3, 4]


def test_a_proxy_that_starts_in_mid_history(recorder: Recorder, tmp_path: Path) -> None:
    assert recorded(recorder, start(0), step(1), step(2)) == [1, 2]
    again = Recorder(LossFile(tmp_path / ".loss.json"))
    assert recorded(again, step(3), step(5)) == [3]


def test_damage_that_a_start_proves(recorder: Recorder) -> None:
    assert recorded(recorder, start(0), step(1), step(3), step(4), start(3), step(4)) == [1, 3, 4]
