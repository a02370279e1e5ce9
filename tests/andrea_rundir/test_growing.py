"""A failed fsync, and what else fails right after it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from andrea_rundir import publish
from andrea_rundir.growing import Growing


@pytest.fixture
def file(tmp_path: Path) -> Growing:
    path = tmp_path / "growing"
    path.write_bytes(b"one\n")
    return Growing(path, os.O_APPEND)


def failing(monkeypatch: pytest.MonkeyPatch, name: str, calls: int) -> list[object]:
    """The next so many calls of `os.NAME` fail; what they were given."""
    real, given = getattr(os, name), []

    def call(*arguments: object, **more: object) -> object:
        if len(given) < calls:
            given.append(arguments[0])
            raise OSError(errno.EIO, "no")
        return real(*arguments, **more)

    monkeypatch.setattr(os, name, call)
    return given


def lies_under_its_name(file: Growing) -> bool:
    os.write(file.fd, b"more\n")
    return file.path.read_bytes().endswith(b"more\n")


def test_a_failed_fsync_is_not_tried_again_on_the_same_file(file: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    old = file.path.stat().st_ino
    given = failing(monkeypatch, "fsync", 2)  # its own, and that of the file which is written in its place
    with pytest.raises(OSError, match="no"):
        file.sync()
    assert len(given) == 2 and file.path.stat().st_ino == old and lies_under_its_name(file)
    file.sync()
    assert file.path.stat().st_ino != old and file.path.read_bytes() == b"one\nmore\n"
    new = file.path.stat().st_ino
    file.sync()
    assert file.path.stat().st_ino == new


def test_a_name_that_may_not_be_durable_is_that_of_the_open_file(
    file: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path) -> None:
        raise OSError(errno.EIO, "the folder")

    failing(monkeypatch, "fsync", 1)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="the folder"):
        patch.setattr(publish, "fsync_dir", refuse)
        file.sync()
    middle = file.path.stat().st_ino
    assert lies_under_its_name(file)
    file.sync()
    assert file.path.stat().st_ino != middle and lies_under_its_name(file)


def test_a_file_that_is_gone_is_not_made_anew_empty(file: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "fsync", 2)
    file.path.unlink()
    with pytest.raises(OSError):
        file.sync()
    assert not file.path.exists()
    file.sync()
    assert file.path.read_bytes() == b"one\n"
