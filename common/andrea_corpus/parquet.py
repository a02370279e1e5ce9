"""Documents in the rows of a Parquet file: the column `text`, or a chat column `messages`.

Needs pyarrow, which comes with the extra `andrea-train[parquet]`; imported only when such a file is read. Reads a page
at a time, so memory follows the file's pages, not its size. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from andrea_corpus.jsonlines import rendered
from andrea_rundir.faults import BadConfig

_ROWS = 64
"""Rows taken at once."""


class Unreadable(Exception):
    """The text says why."""


def documents(path: Path, file: IO[bytes]) -> Iterator[tuple[float, Iterator[bytes]]]:
    """For every row that is not null: the share of rows read so far, and its bytes, which need not be UTF-8.

    Raises Unreadable, from pyarrow or with the columns that are there; ValueError for a row; BadConfig without pyarrow.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BadConfig(
            "reading Parquet needs pyarrow, which is not installed",
            where=str(path),
            todo="pip install 'andrea-train[parquet]', or convert the file to .jsonl",
        ) from None
    try:
        table = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        names = table.schema_arrow.names
        column = next((name for name in ("text", "messages") if name in names), None)
        if column is None:
            raise Unreadable(f"neither a column text nor messages, but {', '.join(names[:6])}")
        kind, done = table.schema_arrow.field(column).type, 0
        if column == "text" and not _is_text(pa, kind):
            raise Unreadable(f"the column text holds {kind}")
        for batch in table.iter_batches(batch_size=_ROWS, columns=[column], use_threads=False):
            values = batch.column(0)
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            rows = values.cast(pa.large_binary()) if column == "text" else values
            for row in rows.to_pylist():
                if row is not None:
                    yield done / table.metadata.num_rows, _bytes(row)
            done += len(values)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise Unreadable(f"not a whole Parquet file: {str(error).splitlines()[0]}") from None


def _is_text(pa: Any, kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _bytes(row: Any) -> Iterator[bytes]:
    return iter((row,)) if isinstance(row, bytes) else (part.encode() for part in rendered(row))
