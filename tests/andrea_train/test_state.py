"""From the vectors to a file and back into them, in pieces that end anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from andrea_rundir import digests, loading, scan
from andrea_rundir.names import RunDir
from andrea_train.state import Staging, State
from harness.models import SHAPE

CPU = torch.device("cpu")


def filled(step: int) -> State:
    state = State(SHAPE, CPU)
    state.step = step
    draw = torch.Generator().manual_seed(step)
    for vector in (state.w, state.m, state.v):
        vector.copy_(torch.rand(SHAPE.n_params, generator=draw))
    return state


def save(run: RunDir, state: State) -> None:
    staging = Staging(SHAPE.n_params, CPU)
    staging.snapshot(state)
    run.checkpoint(state.step).write_bytes(staging.image)


@pytest.mark.parametrize("piece", [4096, 12_288, 4 << 20])
def test_a_file_is_read_into_the_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(scan, "_PIECE", piece)
    run, old, new = RunDir(tmp_path), filled(7), State(SHAPE, CPU)
    save(run, old)
    chosen = loading.choose(run, new.fill, n_params=SHAPE.n_params)
    assert chosen is not None and chosen.step == 7
    for name in ("w", "m", "v"):
        assert torch.equal(getattr(old, name), getattr(new, name)), name


def test_nothing_of_a_file_that_was_passed_over_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found out at its end, by the digest, when all of it has been taken."""
    monkeypatch.setattr(scan, "_PIECE", 4096)
    run, old, new = RunDir(tmp_path), filled(7), State(SHAPE, CPU)
    save(run, old)
    save(run, filled(8))
    digests.record(run.sums, run.checkpoint(8).name, "0" * 64)
    chosen = loading.choose(run, new.fill, n_params=SHAPE.n_params)
    assert chosen is not None and (chosen.step, len(chosen.passed)) == (7, 1)
    for name in ("w", "m", "v"):
        assert torch.equal(getattr(old, name), getattr(new, name)), name
