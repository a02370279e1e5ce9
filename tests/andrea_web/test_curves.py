from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from andrea_rundir import history
from andrea_rundir.entries import latest, read
from andrea_rundir.lossfile import LossFile
from andrea_rundir.names import RunDir
from andrea_web import curves as module
from andrea_web.curves import BLOCK, Curves


def entry(step: int, loss: float | None = 2.0, attempt: int = 1, policy: str = "0-a") -> dict[str, object]:
    return {
        "step": step,
        "attempt": attempt,
        "loss": loss,
        "ema": 2.5,
        "arms": {"a": [3, 1.0, 10], "b": [1, 2.0, 10]},
        "lr": 1e-3,
        "grad_norm": 1.0,
        "tokens": 128,
        "seconds": 0.1,
        "policy": policy,
        "flags": [],
        "time": f"2026-11-29T{step // 3600:02d}:{step // 60 % 60:02d}:{step % 60:02d}.000Z",
    }


def test_it_is_what_the_file_says(trained: RunDir) -> None:
    """Every figure of every step, by the reader of the whole file and by ours."""
    curves = Curves(trained.loss)
    curves.update()
    whole = history.curve(trained)
    found = curves.stretch(1, curves.last, 10_000)
    assert found.steps.tolist() == whole.steps.tolist() and curves.last == 60
    for figure in (found.loss, found.ema):
        assert np.array_equal(*figure)
    assert np.array_equal(found.loss[0], whole.loss) and np.array_equal(found.ema[0], whole.ema)
    steps, arms = curves.arms(1, 60, 10_000)
    entries = list(latest(read(trained.loss)).values())
    for block, first in enumerate(steps.tolist()):
        rows = [row["arms"] for row in entries if first <= row["step"] < first + BLOCK]
        pulls = {arm: sum(row.get(arm, [0])[0] for row in rows) for arm in arms}
        for arm, (share, loss) in arms.items():
            assert share[block] == pulls[arm] / sum(pulls.values())
            if pulls[arm]:
                mean = sum(row[arm][0] * row[arm][1] for row in rows if arm in row) / pulls[arm]
                assert np.isclose(loss[block], mean, rtol=1e-12)


def test_thinning_keeps_the_extremes_and_zooming_shows_every_step(tmp_path: Path) -> None:
    loss = LossFile(tmp_path / "loss.json")
    for start in range(1, 5001, 500):
        loss.append(
            [entry(step, 99.0 if step == 3333 else 0.5 if step == 77 else 2.0) for step in range(start, start + 500)]
        )
    curves = Curves(loss.path)
    curves.update()
    thin = curves.stretch(1, 5000, 50)
    assert len(thin.steps) == 50 and np.max(thin.loss[1]) == 99.0 and np.min(thin.loss[0]) == 0.5
    near = curves.stretch(3300, 3400, 600)
    assert near.steps.tolist() == list(range(3300, 3401)) and near.loss[0][33] == 99.0
    loss.close()


def test_it_follows_step_by_step_and_takes_what_supersedes(tmp_path: Path) -> None:
    loss = LossFile(tmp_path / "loss.json")
    curves = Curves(loss.path)
    for step in range(1, 1500):
        loss.append([entry(step, None if step == 7 else float(step), policy="0-a" if step <= 40 else "40-b")])
        if step % 100 == 3:
            curves.update()
            assert curves.last == step
    loss.append([entry(1400, 5.0, attempt=2)])
    curves.update()
    found = curves.stretch(1, 1499, 2000)
    assert np.isnan(found.loss[0][6]) and found.loss[0][1399] == 5.0 and curves.policies == [(1, "0-a"), (41, "40-b")]
    shares = curves.arms(1, 1499, 100)[1]
    assert np.allclose(shares["a"][0], 0.75) and np.allclose(shares["b"][1], 2.0)
    loss.close()


def test_a_piece_may_end_anywhere(trained: RunDir) -> None:
    for piece in (2000, 4097):
        module._PIECE = piece
        try:
            curves = Curves(trained.loss)
            curves.update()
            assert curves.last == 60 and len(curves.stretch(1, 60, 100).steps) == 60
        finally:
            module._PIECE = 256 << 10


def test_an_entry_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "loss.json"
    lines = [json.dumps(entry(step), separators=(",", ":")).encode() for step in (1, 2)]
    path.write_bytes(b"[\n" + lines[0] + b",\n" + lines[1][:40] + b"\n]")
    curves = Curves(path)
    curves.update()
    assert curves.last == 1
    with path.open("r+b") as file:
        file.write(b"[\n" + b",\n".join(lines) + b"\n]")
    curves.update()
    assert curves.last == 2


def test_a_file_that_is_replaced_or_gone_is_noticed(tmp_path: Path) -> None:
    loss = LossFile(tmp_path / "loss.json")
    loss.append([entry(step) for step in range(1, 30)])
    curves = Curves(loss.path)
    curves.update()
    assert curves.last == 29
    loss.path.rename(tmp_path / "moved")
    curves.update()
    assert curves.last == 0 and not curves.stretch(1, 100, 10).steps.size
    other = LossFile(loss.path)
    other.append([entry(1)])
    curves.update()
    assert curves.last == 1
    for file in (loss, other):
        file.close()
