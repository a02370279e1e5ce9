"""`andrea plot`: 200,000 steps in a thousand columns, nothing left out; and the files that come of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from andrea_cli.picture import COLUMNS, gather
from andrea_rundir.entries import encode, entry_of
from andrea_rundir.names import RunDir
from harness.commands import Andrea, Tell

LONG, PIVOT, SPIKE, SKIPPED = 200_000, 120_000, 123_457, 77_777


def step(number: int, loss: float | None, pivot: int = PIVOT) -> dict[str, Any]:
    """Arm `a` has all pulls of an odd step, and a quarter of those of an even one."""
    arms = {"a": [4, loss, 99]} if number % 2 else {"a": [1, loss, 99], "b_2": [3, loss, 99]}
    return {
        "step": number,
        "loss": loss,
        "arms": arms,
        "lr": number / LONG,
        "grad_norm": None,
        "tokens": 128,
        "seconds": 0.1,
        "policy": "0-0123456789ab" if number <= pivot else f"{pivot}-0123456789ab",
        "flags": [],
        "time": "2026-11-29T21:30:00.000Z",
    }


def write(run: RunDir, events: list[dict[str, Any]], later: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """A loss file with their entries, and with second attempts behind them; the first ones are returned."""
    made, ema = [], None
    for event in events:
        made.append(entry_of(event, 1, ema))
        ema = made[-1]["ema"]
    again = [entry_of(event, 2, None) for event in later or []]
    run.loss.write_bytes(b"[\n" + b",\n".join(map(encode, made + again)) + b"\n]" + b" " * 100)
    return made


def test_a_long_history_with_every_extreme_in_it(made_up: RunDir) -> None:
    losses: list[float | None] = [2.0 + (n * 2654435761 % 1000) / 1000 for n in range(1, LONG + 1)]
    losses[SPIKE - 1], losses[SKIPPED - 1] = 99.0, None
    steps = [step(n, loss) for n, loss in enumerate(losses, 1)]
    made = write(made_up, steps, [step(n, 0.5) for n in range(150_000, 150_011)])
    losses[149_999:150_010] = [0.5] * 11

    picture = gather(made_up)
    assert (picture.count, picture.last, len(picture.steps)) == (LONG, LONG, COLUMNS)
    wide = LONG // COLUMNS
    assert picture.steps.tolist() == list(range(1, LONG + 1, wide))
    known = np.array([np.nan if loss is None else loss for loss in losses]).reshape(COLUMNS, wide)
    np.testing.assert_array_equal(picture.loss[0], np.nanmin(known, axis=1))
    np.testing.assert_array_equal(picture.loss[1], np.nanmax(known, axis=1))
    assert picture.loss[1][(SPIKE - 1) // wide] == 99.0 and picture.loss[0][150_000 // wide] == 0.5
    emas = np.array([entry["ema"] for entry in made]).reshape(COLUMNS, wide)
    later = slice(149_000 // wide, 151_000 // wide)  # where entries were superseded
    for found, expected in zip(picture.ema, (emas.min(axis=1), emas.max(axis=1)), strict=True):
        np.testing.assert_array_equal(np.delete(found, later), np.delete(expected, later))
    assert picture.lr[-1] == 1.0
    starts, shares = picture.shares
    assert starts.tolist() == list(range(1, LONG + 1, 1000)) and shares.keys() == {"a", "b_2"}
    np.testing.assert_array_equal(shares["b_2"], np.full(200, 3 / 8))
    assert picture.marks["pivots"] == [PIVOT]


def test_a_short_history_is_drawn_step_by_step(made_up: RunDir, tell: Tell) -> None:
    """What the proxy has not recorded comes from the events, and so do probes, audits and restarts."""
    write(made_up, [step(n, 3.0, pivot=4) for n in range(1, 7)])
    tell([{"event": "start", "step": 0}, {"event": "probe", "step": 0, "arms": {"a": 8.0, "b_2": None}, "mean": None}])
    later = [{**step(n, 2.0, pivot=4), "event": "step", "time": float(n)} for n in (6, 7, 8)]
    tell([{"event": "start", "step": 5}, *later])
    tell([{"event": "audit", "step": 8, "score": 66.7}, {"event": "probe", "step": 8, "arms": {"a": 4.0}, "mean": 4.0}])
    for name in ("step_000005.bin", "kept/step_000004.bin", "archive/step_000004/step_000004.bin"):
        (made_up.root / name).parent.mkdir(parents=True, exist_ok=True)
        (made_up.root / name).write_bytes(b"x")
    made_up.lineage.write_text(json.dumps({"schema": 1, "made_by": "init --from", "step": 2, "digest": "ab"}))
    picture = gather(made_up)
    assert picture.steps.tolist() == list(range(1, 9))
    assert picture.loss[0].tolist() == picture.loss[1].tolist() == [3.0] * 6 + [2.0] * 2
    assert picture.ema[0].tolist() == pytest.approx([3.0] * 6 + [2.99, 2.9801])
    assert picture.shares[0].tolist() == [1] and picture.shares[1]["a"].tolist() == [5 / 8]
    assert picture.probes[0].tolist() == [0, 8] and picture.probes[1]["a"].tolist() == [8.0, 4.0]
    assert np.isnan(picture.probes[1][""][0]) and np.isnan(picture.probes[1]["b_2"]).all()
    assert [column.tolist() for column in picture.audits] == [[8], [66.7]]
    assert picture.marks == {"checkpoints": [5], "kept": [4], "pivots": [4], "restarts": [5], "origin": [2]}


def test_the_files(andrea: Andrea, made_up: RunDir, tmp_path: Path) -> None:
    write(made_up, [step(n, None if n == 3 else 3.0, pivot=4) for n in range(1, 7)])
    done = andrea("plot", made_up.root, "--out", tmp_path / "p.png", "--json")
    assert done.code == 0 and (done.json["steps"], done.json["last"], done.json["columns"]) == (6, 6, 6)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "6 steps, to step 6" in andrea("plot", made_up.root, "--out", tmp_path / "p.svg").out
    drawing = (tmp_path / "p.svg").read_text()
    assert ElementTree.fromstring(drawing).tag.endswith("svg")
    for text in ("loss, nats/token", "share of pulls", "held-out bits/byte", "sample score", "learning rate", "b_2"):
        assert f"<!-- {text} -->" in drawing, text


def test_refusals(andrea: Andrea, made_up: RunDir, tmp_path: Path) -> None:
    out = tmp_path / "p.png"
    done = andrea("plot", made_up.root, "--out", out)
    assert done.code == 1 and "nothing is on record yet" in done.err
    assert andrea("plot", made_up.root, "--out", tmp_path / "p.pdf").code == 2
    assert andrea("plot", made_up.root).code == 2
    write(made_up, [step(1, 3.0)])
    assert "no such folder" in andrea("plot", made_up.root, "--out", tmp_path / "none" / "p.png").err
    assert andrea("plot", tmp_path / "none", "--out", out).code == 1
    assert not out.exists()
