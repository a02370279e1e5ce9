import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from andrea_corpus.source import Source
from andrea_rundir.faults import BadConfig
from andrea_rundir.policy import Arm

TEXTS = ["first", None, "zwei\r\nlines", "", "e\u0301 👩‍👩‍👧 \0"]


def source(path: Path, **fields: str) -> Source:
    return Source(path, Arm.model_validate({"path": str(path), **fields}))


def documents(path: Path, **fields: str) -> list[str]:
    found: list[str] = []
    for piece in source(path, **fields):
        if piece.first:
            found.append("")
        found[-1] += piece.data.decode()
    return found


def write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def refused(path: Path, **fields: str) -> BadConfig:
    with pytest.raises(BadConfig) as error:
        documents(path, **fields)
    return error.value


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_each_row_with_text_is_a_document(tmp_path: Path, kind: pa.DataType) -> None:
    path = write(tmp_path / "a.parquet", id=list(range(5)), text=pa.array(TEXTS, kind))
    assert documents(path) == ["first", "zwei\nlines", "e\u0301 👩‍👩‍👧 \0"]


def test_many_rows_in_many_groups_are_all_read_and_progress_reaches_the_end(tmp_path: Path) -> None:
    texts = [f"row {i} " * 50 for i in range(1000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": texts}), path, row_group_size=150)
    read = source(path)
    at = [read.read for _ in read]
    assert documents(path) == texts
    assert at == sorted(at) and read.read == path.stat().st_size


def test_messages_and_packed_files(tmp_path: Path) -> None:
    chat = [[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}], None]
    path = write(tmp_path / "a.parquet", messages=chat)
    assert documents(path) == ["user: Hi\n\nassistant: Yo\n\n"]
    packed = tmp_path / "b.parquet.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    assert documents(packed) == documents(path)


def test_without_the_column_those_that_are_there_are_named(tmp_path: Path) -> None:
    fault = refused(write(tmp_path / "a.parquet", id=[1], body=["x"]))
    assert fault.where == str(tmp_path / "a.parquet") and "but id, body" in fault.found
    assert "holds int64" in refused(write(tmp_path / "b.parquet", text=[1, 2])).found


def test_a_file_that_is_not_whole_is_named(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet", text=["some text"] * 1000).read_bytes()
    for data in (whole[:-4], whole[: len(whole) // 2], b"PAR1 and then nothing", whole[:100] + bytes(50) + whole[150:]):
        path = tmp_path / "b.parquet"
        path.write_bytes(data)
        assert refused(path).where.startswith(str(path))


def test_text_that_is_not_utf8_is_named_by_row_or_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", text=pa.array([b"good", b"caf\xe9 x"], pa.binary()))
    assert refused(path).where == f"{path}, row 2, byte 3"
    assert documents(path, errors="replace") == ["good", "caf\ufffd x"]


def test_a_chat_that_is_none_is_named_by_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", messages=[["not a message"]])
    assert refused(path).where == f"{path}, row 1"


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
from pathlib import Path
from andrea_corpus.source import Source
from andrea_rundir.policy import Arm
try:
    list(Source(Path(sys.argv[1]), Arm(path=sys.argv[1])))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_without_pyarrow_the_extra_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", text=["x"])
    done = subprocess.run([sys.executable, "-c", WITHOUT, path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("BadConfig reading Parquet needs pyarrow")
    assert "andrea-train[parquet]" in done.stdout
