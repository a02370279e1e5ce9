from __future__ import annotations

from pathlib import Path

import pytest

from andrea_cli.source import copied, opened
from andrea_rundir import digests
from andrea_rundir.faults import Refused
from andrea_rundir.names import RunDir
from harness.models import SHAPE, model_run


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return model_run(tmp_path / "run", learned=False)


@pytest.fixture
def branch(tmp_path: Path) -> RunDir:
    (tmp_path / "new").mkdir()
    return RunDir(tmp_path / "new")


def test_what_is_open_cannot_be_pruned_away(run: RunDir, branch: RunDir) -> None:
    whole = run.checkpoint(70).read_bytes()
    with opened(run, 70) as source:
        run.checkpoint(70).unlink()
        digests.forget(run.sums, ["step_000070.bin"])
        found = copied(source, branch, SHAPE.n_params)
    assert branch.checkpoint(70).read_bytes() == whole and found.known
    assert digests.read(branch.sums) == {"step_000070.bin": found.digest}
    with pytest.raises(Refused, match="no checkpoint of step 70"), opened(run, 70):
        pass


def test_a_copy_is_verified_where_it_lies(run: RunDir, branch: RunDir) -> None:
    with opened(run, 70) as source:
        with run.checkpoint(70).open("r+b") as file:  # the disk loses a bit
            file.seek(100)
            file.write(b"\x01")
        with pytest.raises(Refused, match="not a usable checkpoint"):
            copied(source, branch, SHAPE.n_params)


def test_of_another_model(run: RunDir, branch: RunDir) -> None:
    with opened(run, 70) as source, pytest.raises(Refused) as caught:
        copied(source, branch, SHAPE.n_params + 1)
    assert f"a checkpoint of {SHAPE.n_params + 1:,} parameters" in caught.value.expected
