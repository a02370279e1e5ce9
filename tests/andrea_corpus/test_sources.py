import codecs
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus import sources
from andrea_corpus.sources import PIECE, pieces, resolve, resolve_all
from andrea_rundir.faults import BadConfig
from andrea_rundir.policy import Arm


def arm(*paths: Path | str, **fields: str) -> Arm:
    return Arm.model_validate({"path": [str(path) for path in paths], **fields})


def text_of(path: Path, **fields: str) -> bytes:
    return b"".join(piece.data for piece in pieces(path, arm(path, **fields)))


def refused(*paths: Path | str, **fields: str) -> BadConfig:
    with pytest.raises(BadConfig) as error:
        resolve("prose", arm(*paths, **fields))
    return error.value


@given(st.text(min_size=1))
def test_text_comes_back_normalised_and_nothing_else_is_touched(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_bytes(text.encode())
    expected = text.removeprefix("\ufeff").replace("\r\n", "\n").encode()
    if expected:
        assert text_of(path) == expected


@pytest.mark.parametrize("at", range(-4, 5))
@pytest.mark.parametrize("what", ["\r\n", "\r", "é", "👩", "\r\r\n", "\ufeff"])
def test_what_lies_across_the_end_of_a_chunk_is_not_torn(tmp_path: Path, at: int, what: str) -> None:
    text = ("a" * (PIECE + at) + what + "b\n") * 2 + what
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode())
    assert text_of(path) == text.replace("\r\n", "\n").encode()


@given(st.binary(min_size=1, max_size=40))
def test_bytes_that_are_not_utf8_are_replaced_as_python_does_and_counted(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_bytes(data)
    expected = data.removeprefix(codecs.BOM_UTF8).decode(errors="replace")
    if expected:
        got = list(pieces(path, arm(path, errors="replace")))
        assert b"".join(piece.data for piece in got) == expected.replace("\r\n", "\n").encode()
        kept = data.removeprefix(codecs.BOM_UTF8).decode(errors="ignore").count("\ufffd")
        assert sum(piece.replaced for piece in got) == expected.count("\ufffd") - kept


def test_a_replacement_character_of_the_text_itself_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufffd a ".encode() + b"\xff" + "\ufffd".encode())
    (piece,) = pieces(path, arm(path, errors="replace"))
    assert (piece.data.decode(), piece.replaced) == ("\ufffd a \ufffd\ufffd", 1)


@pytest.mark.parametrize("before", range(4))
def test_pieces_of_a_line_without_end_do_not_cut_characters(tmp_path: Path, before: int) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * before + "👩" * PIECE)
    got = list(pieces(path, arm(path)))
    assert len(got) == 5
    assert "".join(piece.data.decode() for piece in got) == path.read_text()


@pytest.mark.parametrize(
    ("before", "bad"), [(0, b"\xff"), (5, b"\xe2\x82"), (PIECE - 1, b"\xc3("), (3 * PIECE + 7, b"\x80")]
)
def test_bytes_that_are_not_utf8_are_an_error_with_file_and_offset(tmp_path: Path, before: int, bad: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * before + bad)
    with pytest.raises(BadConfig) as error:
        text_of(path)
    assert error.value.where == f"{path}, byte {before}"
    assert 'errors = "replace"' in error.value.todo


def test_pieces_are_small_open_their_document_once_and_end_at_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("some words in a line\n" * 50_000 + "y" * 3 * PIECE)
    got = list(pieces(path, arm(path)))
    assert [piece.first for piece in got] == [True] + [False] * (len(got) - 1)
    assert max(len(piece.data) for piece in got) <= PIECE
    assert got[0].data.endswith(b"\n")
    assert b"".join(piece.data for piece in got) == path.read_bytes()


def test_where_pieces_end_depends_on_the_text_alone(tmp_path: Path) -> None:
    text = "".join(f"line {i} é\n" for i in range(60_000))
    plain, dressed = tmp_path / "a.txt", tmp_path / "b.txt"
    plain.write_bytes(text.encode())
    dressed.write_bytes(codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode())
    assert list(pieces(plain, arm(plain))) == list(pieces(dressed, arm(dressed)))


@pytest.mark.parametrize("data", [b"", codecs.BOM_UTF8])
def test_a_file_without_text_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(BadConfig) as error:
        text_of(path)
    assert error.value.where == str(path)
    assert error.value.found == "no text in it"


def test_a_file_that_turns_into_something_else_before_it_is_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    os.mkfifo(path)
    with pytest.raises(BadConfig) as error:
        text_of(path)
    assert error.value.found == "a FIFO"


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
            text_of(secret)
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


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as error:
        sources.size(tmp_path / "gone.txt")
    assert error.value.where == str(tmp_path / "gone.txt")
