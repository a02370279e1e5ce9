"""Files given to `andrea prepare`: documents, or BadConfig that says what is wrong with the file."""

from __future__ import annotations

import gzip
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus.source import Source
from andrea_rundir.faults import BadConfig
from andrea_rundir.policy import Arm
from fuzz.effort import examples
from fuzz.hurting import bounded
from fuzz.mutations import mutated

TEXT = "".join(f"line {i} of a text, é and 漢\n" for i in range(40)).encode()
ROWS: list[Any] = [{"text": f"row {i}"} for i in range(8)] + [{"messages": [{"role": "user", "content": "hello"}]}]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def parquet(column: str, values: list[Any], **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({column: values}), file, **options)
    return file.getvalue()


FILES = {
    "a.txt": TEXT,
    "a.jsonl": LINES,
    "a.txt.gz": gzip.compress(TEXT, mtime=0),
    "a.jsonl.gz": gzip.compress(LINES, mtime=0),
    "a.txt.zst": zstandard.compress(TEXT),
    "a.jsonl.zst": zstandard.compress(LINES),
    "a.parquet": parquet("text", [f"row {i}" for i in range(100)]),
    "b.parquet": parquet("messages", [[{"role": "user", "content": "x"}]] * 9, compression="none"),
}


def read(path: Path) -> int:
    """Bytes of all documents."""
    return sum(len(piece.data) for piece in Source(path, Arm(path=str(path))))


@pytest.mark.parametrize("name", FILES)
def test_a_good_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    assert read(tmp_path / name) > 0


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@examples(40)
def test_a_hurt_file(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(data.draw(mutated(FILES[name])))
    with bounded(), suppress(BadConfig):
        read(path)
