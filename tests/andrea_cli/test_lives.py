from __future__ import annotations

from typing import Any

import pytest

from andrea_cli.lives import Lives, lives
from andrea_rundir.names import RunDir
from harness.commands import Andrea, Tell

NOW = 1_800_000_000.0


def start(at: float, step: int = 0) -> dict[str, Any]:
    return {"event": "start", "time": NOW + at, "step": step, "furthest": step, "attempt": 1}


def steps(first: int, last: int, at: float, pace: float = 2.0) -> list[dict[str, Any]]:
    """Steps `first` to `last`, the first done at `at`, one every `pace` seconds."""
    return [{"event": "step", "time": NOW + at + pace * i, "step": first + i} for i in range(last - first + 1)]


def test_one_life_has_lost_nothing(made_up: RunDir, tell: Tell) -> None:
    assert lives(made_up) == Lives()
    tell([start(0), *steps(1, 9, 1)])
    assert lives(made_up) == Lives()


def test_a_clean_stop_costs_nothing(made_up: RunDir, tell: Tell) -> None:
    tell([start(0), *steps(1, 9, 1), {"event": "stop", "time": NOW + 20, "step": 9, "reason": "sigterm"}])
    tell([start(500, 9), *steps(10, 12, 501)])
    assert lives(made_up) == Lives(restarts=1)


def test_a_crash_costs_the_steps_since_the_checkpoint_and_the_time_until_the_next_start(
    made_up: RunDir, tell: Tell
) -> None:
    tell([start(0), *steps(1, 9, 1)])  # step 5 at 9, step 9 at 17
    tell([start(60, 5), *steps(6, 7, 61)])
    assert lives(made_up) == Lives(restarts=1, steps_lost=4, seconds_lost=8.0, seconds_down=43.0)
    tell([start(100, 5), *steps(6, 6, 101)])  # step 7 was done at 63; step 5 is where that life began, at 60
    assert lives(made_up) == Lives(restarts=2, steps_lost=6, seconds_lost=11.0, seconds_down=80.0)


def test_a_life_in_several_segments_and_ends_in_several_ways(made_up: RunDir, tell: Tell) -> None:
    tell([start(0), *steps(1, 4, 1)])
    tell(steps(5, 9, 9))  # the same life, another segment
    tell([{"event": "halt", "time": NOW + 20, "step": 9, "reason": "no device", "cause": "setup"}])
    tell([start(30, 3), *steps(4, 4, 31)])
    assert lives(made_up) == Lives(restarts=1, steps_lost=6, seconds_lost=12.0, seconds_down=10.0)


@pytest.mark.parametrize("odd", [{"step": None}, {"time": NOW, "step": "x"}, {"event": "unreadable"}])
def test_events_that_cannot_be_used(made_up: RunDir, tell: Tell, odd: dict[str, Any]) -> None:
    tell([start(0), *steps(1, 2, 1), {"event": "step", "step": 3} | odd])
    tell([start(10, 2) | odd | {"event": "start"}])
    assert lives(made_up).steps_lost == 0


def test_the_status_tells(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    tell([start(0), *steps(1, 9, 1)])
    assert "restarts" not in andrea("status", made_up.root).out
    tell([start(60, 5)])
    shown = andrea("status", made_up.root).out
    assert (
        "restarts:   1; lost: 4 steps trained again (8 s), 43 s not running after ends that nobody asked for" in shown
    )
