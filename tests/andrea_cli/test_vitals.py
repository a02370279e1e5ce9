from __future__ import annotations

import os
from typing import Any

import pytest

from andrea_cli import facts
from andrea_cli.vitals import smoothed
from andrea_rundir.entries import entry_of, smooth
from andrea_rundir.lossfile import LossFile
from andrea_rundir.names import RunDir
from harness.commands import Andrea, Tell


def step(number: int, loss: float | None = 2.0) -> dict[str, Any]:
    figures = {"arms": {}, "lr": 1e-3, "grad_norm": 1.0, "tokens": 1, "seconds": 0.1, "policy": "0-a", "flags": []}
    return {"event": "step", "time": float(number), "step": number, "loss": loss, **figures}


START = {"event": "start", "step": 0}


def record(run: RunDir, first: int, last: int, ema: float | None, attempt: int = 1) -> float | None:
    """Entries with a loss of 3; the smoothed loss after the last."""
    loss = LossFile(run.loss)
    for number in range(first, last + 1):
        entry = entry_of({**step(number, 3.0), "time": "t"}, attempt, ema)
        loss.append([entry])
        ema = entry["ema"]
    loss.close()
    return ema


def expected(ema: float | None, count: int, loss: float = 2.0) -> float | None:
    for _ in range(count):
        ema = smooth(ema, loss)
    return ema


def test_a_young_run_without_a_proxy(made_up: RunDir, tell: Tell) -> None:
    assert smoothed(made_up, facts.recent(made_up)) == (None, None)
    tell([START])
    assert smoothed(made_up, facts.recent(made_up)) == (None, None)
    tell([step(1, 4.0), step(2), step(3, None)])
    assert smoothed(made_up, facts.recent(made_up)) == (3, expected(4.0, 1))


def test_the_proxys_entries_brought_up_to_date(made_up: RunDir, tell: Tell) -> None:
    ema = record(made_up, 1, 400, None)
    tell([START, *(step(number) for number in range(395, 406))])
    assert smoothed(made_up, facts.recent(made_up)) == (405, expected(ema, 5))


def test_the_trainers_own_where_the_proxy_is_far_behind(made_up: RunDir, tell: Tell) -> None:
    ema = record(made_up, 1, 20, None)
    tell([START, *(step(number) for number in range(900, 1001))])
    assert smoothed(made_up, facts.recent(made_up)) == (20, ema)  # and that is said
    snapshot = {"event": "snapshot", "step": 980, "guard": {"ema": 2.5}}
    tell([START, step(980), snapshot, *(step(number) for number in range(981, 1001))])
    assert smoothed(made_up, facts.recent(made_up)) == (1000, expected(2.5, 20))


def test_entries_of_a_life_before_are_passed_over(made_up: RunDir, tell: Tell) -> None:
    ema = record(made_up, 1, 30, None)
    record(made_up, 31, 50, ema)
    tell([{**START, "step": 30}])
    assert smoothed(made_up, facts.recent(made_up)) == (30, ema)


def test_it_is_shown(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    record(made_up, 1, 20, None)
    tell([START, step(20)])
    found = andrea("status", made_up.root, "--json").json
    assert (found["loss"], found["ema"], found["ema_step"]) == (2.0, pytest.approx(3.0), 20)
    assert "loss:       2.0000 nats/token, 3.0000 smoothed\n" in andrea("status", made_up.root).out
    tell([step(900)])
    assert "3.0000 smoothed at step 20\n" in andrea("status", made_up.root).out


def test_listing_shows_the_same(andrea: Andrea, made_up: RunDir, tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDREA_STATE", str(made_up.root.parent))
    record(made_up, 1, 20, None)
    tell([START, *(step(number) for number in range(1, 21))])
    made_up.checkpoint(20).write_bytes(b"x")
    os.utime(made_up.checkpoint(20), (0, 0))
    status = andrea("status", made_up.root, "--json").json
    (one,) = andrea("list", "--json").json["runs"]
    shared = ("state", "sentence", "step", "max_steps", "loss", "ema", "tokens_per_second", "eta_seconds")
    assert {name: one[name] for name in shared} == {name: status[name] for name in shared}
    assert one["checkpoint"]["step"] == 20
    heading, row = andrea("list").out.splitlines()
    assert heading.split() == ["run", "state", "step", "loss", "time", "left", "checkpoint"]
    assert row.startswith("  made-up  stopped  20 of 40  3.0000  -          20, ")
    made_up.run_toml.write_text("[run")
    (one,) = andrea("list", "--json").json["runs"]
    assert one["step"] is None  # a run that cannot be read does not hide the others
