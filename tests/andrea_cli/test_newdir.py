from __future__ import annotations

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


def test_a_parent_in_use_by_others_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), building(vacant(tmp_path / "a" / "new")):
        (tmp_path / "a" / "other").write_text("x")
        raise ValueError("mine")
    assert os.listdir(tmp_path / "a") == ["other"]
