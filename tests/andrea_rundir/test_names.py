from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir.names import RunDir, checkpoint_name, checkpoint_step, locate, state_directory


@given(st.integers(min_value=0, max_value=10**9))
def test_a_name_gives_its_step_back(step: int) -> None:
    assert checkpoint_step(checkpoint_name(step)) == step


@pytest.mark.parametrize(
    "name",
    [
        "step_00100.bin",
        "step_0000100.bin",
        "step_000100.bin.bad",
        ".step_000100.bin.7.tmp",
        "xstep_000100.bin",
        "step_-00100.bin",
        "step_000100.BIN",
        "step_000100.bin\n",
        "step_٠٠٠١٠٠.bin",
    ],
)
def test_anything_else_is_not_a_checkpoint(name: str) -> None:
    assert checkpoint_step(name) is None


def test_checkpoints_are_ordered_as_numbers(tmp_path: Path) -> None:
    for name in ("step_1000000.bin", "step_999900.bin", "step_000000.bin", "step_000100.bin.bad", "run.toml"):
        (tmp_path / name).touch()
    (tmp_path / "step_000200.bin").mkdir()
    run = RunDir(tmp_path)
    assert list(run.checkpoints()) == [0, 200, 999900, 1000000]
    assert run.checkpoints()[1000000] == run.checkpoint(1000000) == tmp_path / "step_1000000.bin"


def test_every_path_lies_in_the_run_and_has_its_own_name(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    paths = [getattr(run, name) for name, kind in vars(RunDir).items() if isinstance(kind, property)]
    assert len(paths) > 15
    assert all(path.parent == tmp_path for path in paths)
    assert len(set(paths)) == len(paths)


def test_the_state_directory_is_systemds_then_ours_then_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDREA_STATE", "/b")
    monkeypatch.setenv("STATE_DIRECTORY", "/a:/other")
    assert state_directory() == Path("/a")
    monkeypatch.delenv("STATE_DIRECTORY")
    assert state_directory() == Path("/b")
    monkeypatch.delenv("ANDREA_STATE")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert state_directory() == Path("/var/lib/andrea")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/someone")
    assert state_directory() == Path("/home/someone/.local/state/andrea")


def test_run_is_a_path_if_it_looks_like_one_or_exists_else_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", "/state")
    monkeypatch.chdir(tmp_path)
    assert locate("demo").root == Path("/state/demo")
    assert locate("./demo").root == tmp_path / "demo"
    assert locate("/x/demo").root == Path("/x/demo")
    (tmp_path / "demo").mkdir()
    assert locate("demo").root == tmp_path / "demo"
