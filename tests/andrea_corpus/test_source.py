import codecs
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus.source import Source
from andrea_corpus.text import PIECE
from andrea_rundir.faults import BadConfig
from andrea_rundir.policy import Arm


def source(path: Path, **fields: str) -> Source:
    return Source(path, Arm.model_validate({"path": str(path), **fields}))


def text_of(path: Path, **fields: str) -> bytes:
    return b"".join(piece.data for piece in source(path, **fields))


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
        read = source(path, errors="replace")
        got = list(read)
        assert b"".join(piece.data for piece in got) == expected.replace("\r\n", "\n").encode()
        kept = data.removeprefix(codecs.BOM_UTF8).decode(errors="ignore").count("\ufffd")
        assert read.replaced == expected.count("\ufffd") - kept


@pytest.mark.parametrize("before", range(4))
def test_pieces_of_a_line_without_end_do_not_cut_characters(tmp_path: Path, before: int) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * before + "👩" * PIECE)
    got = list(source(path))
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
    got = list(source(path))
    assert [piece.first for piece in got] == [True] + [False] * (len(got) - 1)
    assert max(len(piece.data) for piece in got) <= PIECE
    assert got[0].data.endswith(b"\n")
    assert b"".join(piece.data for piece in got) == path.read_bytes()


def test_where_pieces_end_depends_on_the_text_alone(tmp_path: Path) -> None:
    text = "".join(f"line {i} é\n" for i in range(60_000))
    plain, dressed = tmp_path / "a.txt", tmp_path / "b.txt"
    plain.write_bytes(text.encode())
    dressed.write_bytes(codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode())
    assert list(source(plain)) == list(source(dressed))


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


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as error:
        source(tmp_path / "gone.txt")
    assert error.value.where == str(tmp_path / "gone.txt")


def test_a_replacement_character_of_the_text_itself_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufffd a ".encode() + b"\xff" + "\ufffd".encode())
    read = source(path, errors="replace")
    (piece,) = read
    assert (piece.data.decode(), read.replaced) == ("\ufffd a \ufffd\ufffd", 1)
