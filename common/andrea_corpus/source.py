"""One file of an arm as a stream of its documents, whatever its format: normalised text in pieces of at most 64 KiB.

Every error names the file, and the byte, line or row where there is one. Writes nothing. Imports this package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from andrea_corpus import files, jsonlines, parquet
from andrea_corpus.text import NotUtf8, Piece, decoded, document, tidied
from andrea_rundir.faults import BadConfig, raise_shortage
from andrea_rundir.policy import Arm

ENDINGS = {".txt": "text", ".md": "text", ".jsonl": "jsonl", ".parquet": "parquet"}
"""What `format = "auto"` makes of a file's name, packed or not."""

PACKED = (".gz", ".zst")

_SURROGATE = re.compile("[\ud800-\udfff]")


def format_of(path: Path, arm: Arm) -> str | None:
    """The format that a file of this arm has; None when its name does not tell."""
    if arm.format != "auto":
        return arm.format
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    return ENDINGS.get(name.suffix.lower())


class Source:
    """Iterate over it for the pieces. `read`: bytes of the file so far; `replaced`: characters U+FFFD put in."""

    def __init__(self, path: Path, arm: Arm) -> None:
        self._path, self._errors = path, arm.errors
        self._format = format_of(path, arm)
        self.size = _size(path)
        self.read = self.replaced = 0

    def __iter__(self) -> Iterator[Piece]:
        """BadConfig: it has no text, is not UTF-8, is not of its format, or cannot be read to its end."""
        documents = {"text": self._text, "jsonl": self._json_lines, "parquet": self._parquet}[self._format or "text"]
        empty = True
        for text in documents():
            for piece in document(tidied(text)):
                empty = False
                yield piece
        if empty:
            raise files.unusable(self._path, "no text in it")

    def _told(self, read: int) -> None:
        self.read = read

    def _replaced(self, count: int) -> None:
        self.replaced += count

    def _utf8(self, raw: Iterator[bytes], place: Callable[[int], str]) -> Iterator[bytes]:
        """Whole characters; a byte that is none is named by `place(its offset)`."""
        try:
            yield from decoded(raw, self._errors, self._replaced)
        except NotUtf8 as error:
            raise BadConfig(
                "a source is not UTF-8",
                where=f"{self._path}, {place(error.offset)}",
                found=error.found,
                expected="UTF-8 text",
                todo='convert the file, or set errors = "replace" for this arm',
            ) from None

    def _whole(self) -> Iterator[bytes]:
        unpacked = " (unpacked)" if self._path.suffix.lower() in PACKED else ""
        return self._utf8(files.chunks(self._path, self._told), lambda offset: f"byte {offset}{unpacked}")

    def _text(self) -> Iterator[Iterator[bytes]]:
        yield self._whole()

    def _json_lines(self) -> Iterator[Iterator[bytes]]:
        for number, text in jsonlines.documents(self._whole()):
            yield self._named(map(self._encoded, text), f"line {number}")

    def _parquet(self) -> Iterator[Iterator[bytes]]:
        try:
            with files.seekable(self._path, self._told) as file:
                for i, (share, row) in enumerate(parquet.documents(self._path, file), 1):
                    self.read = max(self.read, int(share * self.size))
                    at = f"row {i}"
                    yield self._named(self._utf8(row, lambda offset, at=at: f"{at}, byte {offset}"), at)  # type: ignore[misc]
        except parquet.Unreadable as error:
            raise files.unusable(self._path, str(error), whole=True) from None
        except OSError as error:
            raise_shortage(error)
            raise files.unusable(self._path, error.strerror or str(error)) from None
        self.read = self.size

    def _named(self, text: Iterator[bytes], place: str) -> Iterator[bytes]:
        """The same, what is wrong with it said as a fault of the file."""
        try:
            yield from text
        except ValueError as error:
            raise files.unusable(self._path, _first_line(error), place=place) from None

    def _encoded(self, text: str) -> bytes:
        """UTF-8; what JSON can say and UTF-8 cannot, a lone surrogate, becomes U+FFFD."""
        try:
            return text.encode()
        except UnicodeEncodeError:
            text, count = _SURROGATE.subn("\ufffd", text)
            self.replaced += count
            return text.encode()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise_shortage(error)
        raise files.unusable(path, str(error.strerror)) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
