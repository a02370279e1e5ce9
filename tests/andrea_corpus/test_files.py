import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus import files
from andrea_rundir.faults import BadConfig

TEXT = b"The quick brown fox jumps over the lazy dog.\n" * 20_000


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACK = {".gz": gzip.compress, ".zst": zst}


def read(path: Path) -> bytes:
    return b"".join(files.chunks(path, lambda read: None))


@pytest.mark.parametrize("ending", PACK)
@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_what_was_packed_comes_back_member_after_member(
    tmp_path_factory: pytest.TempPathFactory, ending: str, parts: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("p") / f"a.txt{ending}"
    path.write_bytes(b"".join(map(PACK[ending], parts)))
    assert read(path) == b"".join(parts)


@pytest.mark.parametrize("ending", ["", *PACK])
def test_how_far_the_file_is_read_is_told(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACK[ending](TEXT) if ending else TEXT)
    told: list[int] = []
    assert b"".join(files.chunks(path, told.append)) == TEXT
    assert told == sorted(told) and told[-1] == path.stat().st_size
    with files.seekable(path, told.append) as file:
        file.seek(-4, io.SEEK_END)
        assert file.read() == b"og.\n"


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("keep", [1, 6, 0.5, -1])
def test_a_packed_file_that_is_cut_short_is_named(tmp_path: Path, ending: str, keep: float) -> None:
    path, whole = tmp_path / f"a.txt{ending}", PACK[ending](TEXT)
    path.write_bytes(whole[: int(len(whole) * keep) if 0 < keep < 1 else int(keep)])
    with pytest.raises(BadConfig) as error:
        read(path)
    assert error.value.where == str(path)


@pytest.mark.parametrize("ending", PACK)
def test_a_file_of_another_kind_or_with_something_after_it_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    other = next(kind for kind in PACK if kind != ending)
    for data in (b"just text", PACK[other](TEXT), PACK[ending](TEXT) + b"and more", bytes(20)):
        path.write_bytes(data)
        with pytest.raises(BadConfig) as error:
            read(path)
        assert error.value.where == str(path) and "not a whole" in error.value.found


def test_a_spoilt_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    whole = bytearray(gzip.compress(os.urandom(5000)))
    whole[2500] ^= 1
    path.write_bytes(whole)
    with pytest.raises(BadConfig, match="cannot be used"):
        read(path)


BOMB = """
import sys
from pathlib import Path
from andrea_corpus.files import chunks
import zstandard
def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
base = peak()
total = sum(map(len, chunks(Path(sys.argv[1]), lambda read: None)))
print(total, peak() - base)
"""


@pytest.mark.parametrize("ending", PACK)
def test_a_little_file_that_unpacks_to_very_much_stays_small_in_memory(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACK[ending](bytes(400 << 20)))
    done = subprocess.run([sys.executable, "-c", BOMB, path], capture_output=True, text=True, check=True)
    total, kilobytes = map(int, done.stdout.split())
    assert total == 400 << 20 and kilobytes < 100_000
