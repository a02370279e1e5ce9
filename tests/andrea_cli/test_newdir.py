from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from andrea_cli.newdir import building, vacant
from andrea_rundir.faults import Refused


def test_it_is_whole_or_not_there(tmp_path: Path) -> None:
    target = vacant(tmp_path / "a" / "b" / "new")
    with building(target) as scratch:
        assert not target.exists() and scratch.parent == target.parent
        (scratch / "file").write_text("x")
    assert (target / "file").read_text() == "x" and os.listdir(target.parent) == ["new"]


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt(), SystemExit(143)])
def test_a_failure_takes_everything_back(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(type(error)), building(vacant(tmp_path / "there" / "x" / "y")) as scratch:
        (scratch / "deep").mkdir()
        (scratch / "deep" / "file").write_text("x")
        raise error
    assert os.listdir(tmp_path / "there") == []


def test_somebody_was_faster(tmp_path: Path) -> None:
    target = tmp_path / "new"
    with pytest.raises(Refused, match="cannot be made"), building(vacant(target)) as scratch:
        (scratch / "file").write_text("ours")
        target.mkdir()
        (target / "file").write_text("theirs")
    assert (target / "file").read_text() == "theirs" and os.listdir(tmp_path) == ["new"]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_makes_is_not(tmp_path: Path) -> None:
    target = tmp_path / "new"
    (tmp_path / ".new.999999999.tmp" / "deep").mkdir(parents=True)
    (tmp_path / ".other.999999999.tmp").mkdir()
    living = tmp_path / ".new.999999998.tmp"
    living.mkdir()
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with building(vacant(target)) as scratch:
        assert sorted(os.listdir(tmp_path)) == sorted([living.name, ".other.999999999.tmp", scratch.name])
        probe = os.open(scratch, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(probe)
    os.close(lock)


def test_a_parent_in_use_by_others_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), building(vacant(tmp_path / "a" / "new")):
        (tmp_path / "a" / "other").write_text("x")
        raise ValueError("mine")
    assert os.listdir(tmp_path / "a") == ["other"]


def test_no_run_inside_a_run(tmp_path: Path) -> None:
    (tmp_path / "run" / "data").mkdir(parents=True)
    (tmp_path / "run" / "run.toml").touch()
    assert vacant(tmp_path / "run" / "beside") == tmp_path / "run" / "beside", "a folder with a template is no run"
    (tmp_path / "run" / "data" / "sources.json").touch()
    with pytest.raises(Refused, match="would lie inside a run"):
        vacant(tmp_path / "run" / "deep" / "branch")
    assert vacant(tmp_path / "branch") == tmp_path / "branch"
