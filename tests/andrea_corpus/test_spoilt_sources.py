"""Sources that cannot be used, or change while they are read: named, and nothing is made of them."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from andrea_corpus.prepare import opened
from andrea_corpus.reading import Progress
from harness.sources import PROSE, SUMS, Place

Spoil = Callable[[Place], str]


def empty(place: Place) -> str:
    return str(place.write("sums.txt", ""))


def only_a_mark(place: Place) -> str:
    return str(place.write("sums.txt", "\ufeff"))


def not_utf8(place: Place) -> str:
    return f"{place.write('sums.txt', SUMS.encode() + b'caf' + bytes([0xE9]))}, byte {len(SUMS) + 3}"


def missing(place: Place) -> str:
    (place.texts / "sums.txt").unlink()
    return str(place.texts / "sums.txt")


def fifo(place: Place) -> str:
    os.mkfifo(missing(place))
    return str(place.texts / "sums.txt")


def loop(place: Place) -> str:
    (place.texts / "prose" / "again").symlink_to(place.texts / "prose")
    return str(place.texts / "prose" / "again")


def under_two_arms(place: Place) -> str:
    path = place.texts / "prose" / "sums.txt"
    path.hardlink_to(place.texts / "sums.txt")
    return f"{place.texts}/sums.txt (the same file as {path})"


def folder_without_text(place: Place) -> str:
    path = place.texts / "sums.txt"
    path.unlink()
    path.mkdir()
    (path / "a.png").write_bytes(b"\x89PNG")
    return str(path)


def strange_name(place: Place) -> str:
    path = place.write("sums.xyz", SUMS)
    place.text = place.text.replace("sums.txt", "sums.xyz")
    return str(path)


@pytest.mark.parametrize(
    "spoil",
    [empty, only_a_mark, not_utf8, missing, fifo, loop, under_two_arms, folder_without_text, strange_name],
)
def test_a_bad_source_is_named_and_nothing_is_created(place: Place, spoil: Spoil) -> None:
    where = spoil(place)
    assert place.refused().where == where
    assert not place.run.root.exists()


def test_an_arm_too_small_for_a_window_is_named_with_the_numbers_and_nothing_is_created(place: Place) -> None:
    place.write("sums.txt", "x" * 127)
    fault = place.refused()
    assert fault.what == "arm sums has too little text"
    assert fault.found == "128 tokens: 64 to train on, 64 held out"
    assert not place.run.root.exists()
    place.write("sums.txt", "x" * 129)
    assert opened(place.run, place.text if place.prepare() else "")["sums"].n_windows(64) == 1


def rewrite(path: Path) -> None:
    path.write_text(PROSE[:-2] + "!\n")


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


def blank(path: Path) -> None:
    os.truncate(path, 0)


def remove(path: Path) -> None:
    path.unlink()


def spoil_bytes(path: Path) -> None:
    path.write_bytes(b"\xff" * 5000)


@pytest.mark.parametrize("how", [rewrite, truncate, blank, remove, spoil_bytes])
@pytest.mark.parametrize("act", ["reading", "writing"])
def test_a_source_that_changes_while_it_is_read_is_named_and_no_shard_is_made_of_it(
    place: Place, how: Callable[[Path], None], act: str
) -> None:
    """In the first pass after its text went by, or in the second before it is read again."""
    path, done = place.texts / "sums.txt", False

    def change(progress: Progress) -> None:
        nonlocal done
        if not done and (progress.arm, progress.act) == ("prose" if act == "writing" else "sums", act):
            done = True
            how(path)

    fault = place.refused(change)
    assert str(path) in fault.where
    endings = sorted(name.partition(".")[2] for name in place.files())
    assert endings == ["held.bin", "json", "json", "train.bin"]  # the shard of prose, and tokenizer.json


def cut_gz(place: Place) -> str:
    path = place.write("sums.txt.gz", gzip.compress(SUMS.encode())[:-9])
    place.text = place.text.replace("sums.txt", "sums.txt.gz")
    return str(path)


def not_zst(place: Place) -> str:
    path = place.write("sums.txt.zst", gzip.compress(SUMS.encode()))
    place.text = place.text.replace("sums.txt", "sums.txt.zst")
    return str(path)


def cut_json(place: Place) -> str:
    line = json.dumps({"text": SUMS})
    path = place.write("sums.jsonl", f"{line}\n{line[:-3]}")
    place.text = place.text.replace("sums.txt", "sums.jsonl")
    return f"{path}, line 2"


def no_column(place: Place) -> str:
    path = place.texts / "sums.parquet"
    parquet.write_table(pyarrow.table({"body": [SUMS]}), path)
    place.text = place.text.replace("sums.txt", "sums.parquet")
    return str(path)


@pytest.mark.parametrize("spoil", [cut_gz, not_zst, cut_json, no_column])
def test_a_bad_packed_or_structured_source_is_named_and_nothing_is_created(place: Place, spoil: Spoil) -> None:
    where = spoil(place)
    assert place.refused().where == where
    assert not place.run.root.exists()


@pytest.mark.parametrize("how", [truncate, remove])
@pytest.mark.parametrize("name", ["sums.jsonl.gz", "sums.parquet"])
def test_a_packed_or_structured_source_that_changes_while_it_is_read_is_named(
    place: Place, name: str, how: Callable[[Path], None]
) -> None:
    path, done = place.texts / name, False
    if name.endswith(".gz"):
        place.write(
            name, gzip.compress("".join(json.dumps({"text": SUMS + str(i)}) + "\n" for i in range(50)).encode())
        )
    else:
        parquet.write_table(pyarrow.table({"text": [SUMS + str(i) for i in range(50)]}), path)
    place.text = place.text.replace("sums.txt", name)

    def change(progress: Progress) -> None:
        nonlocal done
        if not done and (progress.arm, progress.act) == ("prose", "writing"):
            done = True
            how(path)

    assert str(path) in place.refused(change).where
    assert len([file for file in place.files() if file.endswith(".bin")]) == 2  # the shard of prose
