import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from andrea_corpus.source import Source
from andrea_corpus.sources import resolve, resolve_all
from andrea_rundir.faults import BadConfig
from andrea_rundir.policy import Arm


def arm(*paths: Path | str, **fields: str) -> Arm:
    return Arm.model_validate({"path": [str(path) for path in paths], **fields})


def refused(*paths: Path | str, **fields: str) -> BadConfig:
    with pytest.raises(BadConfig) as error:
        resolve("prose", arm(*paths, **fields))
    return error.value


def test_files_are_sorted_each_once_and_hidden_or_foreign_ones_left_out(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/10.md", "a.txt", ".git/x.txt", "b/.y.txt", "b/picture.png", "Z.TXT"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "c.txt").symlink_to(tmp_path / "a.txt")
    found = resolve("prose", arm(tmp_path))
    assert [str(path.relative_to(tmp_path)) for path in found] == ["Z.TXT", "a.txt", "b/10.md", "b/2.txt"]


def test_paths_keep_their_order_and_globs_give_their_files(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "a.txt", "b/d/3.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = resolve("prose", arm(tmp_path / "b" / "*.txt", tmp_path / "a.txt", tmp_path / "b", tmp_path / "**" / "3.*"))
    assert [path.name for path in found] == ["1.txt", "2.txt", "a.txt", "3.txt"]


def test_a_name_with_glob_characters_is_that_file(tmp_path: Path) -> None:
    path = tmp_path / "notes [1].txt"
    path.write_text("x")
    assert resolve("prose", arm(path)) == [path]


def test_format_text_reads_any_name(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("x")
    assert resolve("prose", arm(tmp_path, format="text")) == [tmp_path / "LICENSE"]
    assert resolve("prose", arm(tmp_path / "LICENSE", format="text")) == [tmp_path / "LICENSE"]
    fault = refused(tmp_path / "LICENSE")
    assert fault.where == str(tmp_path / "LICENSE")
    assert 'format = "text"' in fault.todo


@pytest.mark.parametrize("name", ["none.txt", "none/", "*.txt", "empty"])
def test_a_path_without_files_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / name).where == str(tmp_path / name)


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b.txt").write_text("")
    fault = refused(tmp_path)
    assert (fault.where, fault.found) == (str(tmp_path / "b.txt"), "an empty file")


def test_what_is_no_regular_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.txt")
    assert refused(tmp_path).found == "a FIFO"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "a.txt"))
        assert refused(tmp_path).found == "a socket"
    assert refused("/dev/null", format="text").found == "a device"
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling" / "x.txt").symlink_to(tmp_path / "nowhere")
    assert refused(tmp_path / "dangling").where == str(tmp_path / "dangling" / "x.txt")


def test_links_to_folders_are_followed_and_loops_named(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("x")
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link").symlink_to(tmp_path / "real")
    assert resolve("prose", arm(tmp_path / "top")) == [tmp_path / "top" / "link" / "a.txt"]
    (tmp_path / "real" / "up").symlink_to(tmp_path / "top")
    fault = refused(tmp_path / "top")
    assert fault.where == str(tmp_path / "top" / "link" / "up")
    assert "lies in" in fault.found
    (tmp_path / "self.txt").symlink_to("self.txt")
    assert refused(tmp_path / "self.txt").where == str(tmp_path / "self.txt")


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Without root's rights, in a folder that nobody may enter."""
    above = [folder, *folder.parents]
    modes = {path: path.stat().st_mode for path in above}
    if os.geteuid() != 0:
        yield
        return
    for path in above:
        if modes[path] & 0o555 != 0o555:
            path.chmod(modes[path] | 0o555)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_file_or_folder_without_permission_is_named(tmp_path: Path) -> None:
    secret, closed = tmp_path / "secret.txt", tmp_path / "closed"
    secret.write_text("x")
    closed.mkdir()
    (closed / "a.txt").write_text("x")
    secret.chmod(0)
    with as_nobody(tmp_path):
        assert (refused(secret).where, refused(secret).found) == (str(secret), "Permission denied")
        with pytest.raises(BadConfig) as error:
            list(Source(secret, arm(secret)))
        assert error.value.where == str(secret)
    for mode in (0o000, 0o444):
        closed.chmod(mode)
        with as_nobody(tmp_path):
            assert refused(closed).where.startswith(str(closed))
            assert refused(closed / "a.txt").where == str(closed / "a.txt")


def test_a_file_under_two_arms_is_named_with_both(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    os.link(tmp_path / "a.txt", tmp_path / "same.txt")
    arms = {"x": arm(tmp_path / "a.txt"), "y": arm(tmp_path / "b.txt", tmp_path / "same.txt")}
    with pytest.raises(BadConfig) as error:
        resolve_all(arms)
    assert error.value.where == f"{tmp_path}/same.txt (the same file as {tmp_path}/a.txt)"
    assert error.value.found == "arms x and y"
    assert list(resolve_all({"y": arm(tmp_path / "b.txt"), "x": arm(tmp_path / "a.txt")})) == ["x", "y"]
