from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir import history
from andrea_rundir.entries import entry_of, smooth
from andrea_rundir.eventlog import EventLog
from andrea_rundir.lossfile import LossFile
from andrea_rundir.names import RunDir


def step(number: int, loss: float | None = 2.0, **changes: Any) -> dict[str, Any]:
    return {
        "step": number,
        "loss": loss,
        "arms": {"a": [4, loss, 99]},
        "lr": 1e-3,
        "grad_norm": 1.0,
        "tokens": 128,
        "seconds": 0.1,
        "policy": "0-0123456789ab",
        "flags": [],
        "cursors": {"a": 4 * number},
        "credits": {"a": 0},
    } | changes


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def record(run: RunDir, count: int) -> list[dict[str, Any]]:
    """A loss file of `count` entries, as the proxy makes them of step events."""
    loss, made, ema = LossFile(run.loss), [], None
    for number in range(1, count + 1):
        made.append(entry_of({**step(number, 1 / number), "time": f"t{number}"}, 1, ema))
        ema = made[-1]["ema"]
    loss.append(made)
    loss.close()
    return made


def test_steps_the_proxy_has_not_recorded_come_from_the_events(run: RunDir) -> None:
    made = record(run, 3)
    log = EventLog(run.events)
    for number in (1, 2, 3, 4, 5, 6):
        log.append("step", **step(number, 1 / number))
    log.append("start", step=4)
    for number in (5, 6):
        log.append("step", **step(number, 9.0 + number))
    log.close()
    found = history.entries(run)
    assert found[:3] == made and [entry["step"] for entry in found] == [1, 2, 3, 4, 5, 6]
    assert [entry["loss"] for entry in found[3:]] == [1 / 4, 14.0, 15.0]
    expected = made[-1]["ema"]
    for entry in found[3:]:
        expected = 0.99 * expected + (1 - 0.99) * entry["loss"]
        assert entry["ema"] == expected


def test_without_a_proxy_all_comes_from_the_events_and_without_both_there_is_nothing(run: RunDir) -> None:
    assert history.entries(run) == [] and len(history.curve(run).steps) == 0
    log = EventLog(run.events)
    log.append("step", **step(1, 3.0))
    log.append("step", **step(2, None))
    log.close()
    assert [(e["loss"], e["ema"]) for e in history.entries(run)] == [(3.0, 3.0), (None, 3.0)]


def test_the_curve_is_what_the_entries_say(run: RunDir) -> None:
    loss = LossFile(run.loss)
    for number, attempt, value in ((1, 1, 3.0), (2, 1, None), (3, 1, 2.5), (2, 2, 2.75)):
        loss.append([entry_of({**step(number, value), "time": "t"}, attempt, 3.0)])
    curve = history.curve(run)
    assert curve.steps.tolist() == [1, 2, 3] and curve.loss.tolist() == [3.0, 2.75, 2.5]
    assert curve.ema.tolist() == [3.0, 0.99 * 3.0 + (1 - 0.99) * 2.75, 0.99 * 3.0 + (1 - 0.99) * 2.5]
    loss.append([entry_of({**step(4, None), "time": "t"}, 1, None)])
    curve = history.curve(run)
    assert math.isnan(curve.loss[-1]) and math.isnan(curve.ema[-1])


def test_events_of_a_kind_the_last_of_each_step(run: RunDir) -> None:
    log = EventLog(run.events)
    for number, mean in ((0, 8.0), (20, 3.0), (40, 2.5), (20, 3.5)):
        log.append("probe", step=number, mean=mean)
        log.append("step", **step(number + 1, flags=["skipped"]))
    log.close()
    with next(run.events.iterdir()).open("ab") as file:
        file.write(b'{"event":"probe","step":\n{"event":"probe","step":60')
    assert [(event["step"], event["mean"]) for event in history.of_kind(run, "probe")] == [
        (0, 8.0),
        (20, 3.5),
        (40, 2.5),
    ]
    assert history.of_kind(run, "audit") == []


@given(st.lists(st.floats(-1e6, 1e6) | st.none(), max_size=200), st.integers(1, 50))
def test_an_envelope_leaves_no_extreme_out(values: list[float | None], columns: int) -> None:
    data = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    steps, low, high = history.envelope(np.arange(len(values), dtype=np.int64), data, columns)
    assert len(steps) == len(low) == len(high) == min(columns, len(values))
    known = [value for value in values if value is not None]
    assert (not known and np.isnan(low).all()) or (np.nanmin(low), np.nanmax(high)) == (min(known), max(known))
    for i, start in enumerate(steps.tolist()):
        end = steps.tolist()[i + 1] if i + 1 < len(steps) else len(values)
        part = [value for value in values[start:end] if value is not None]
        assert (low[i], high[i]) == (min(part), max(part)) if part else np.isnan(low[i])


def test_smoothing_is_written_so_that_json_gives_it_back() -> None:
    ema = None
    for number in range(1, 200):
        ema = smooth(ema, math.sin(number) + 3)
        assert json.loads(json.dumps(ema)) == ema
