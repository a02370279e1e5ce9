"""From raw bytes to normalised text in pieces: valid UTF-8, no byte order mark, CRLF made LF, nothing else touched.

Pure generators over chunks of bytes; memory does not grow with a document or with a line. Standard library only.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

PIECE = 1 << 16
"""Bytes in the largest piece: small enough for a core's cache and for malloc not to map it anew."""


class Piece(NamedTuple):
    """The next stretch of normalised text; where pieces end depends on the text alone, not on its file."""

    data: bytes
    first: bool
    """It opens a document."""


class NotUtf8(Exception):
    """`offset` is that of the first bad byte, `found` what is wrong with it."""

    def __init__(self, offset: int, found: str) -> None:
        super().__init__(found)
        self.offset, self.found = offset, found


def decoded(raw: Iterator[bytes], errors: str, replaced: Callable[[int], None]) -> Iterator[bytes]:
    """Chunks of whole UTF-8 characters. NotUtf8, or with errors = "replace" U+FFFD, whose number `replaced` is told."""
    offset, tail = 0, b""
    for chunk in chain(raw, (b"",)):
        data = tail + chunk
        try:
            text, used = codecs.utf_8_decode(data, errors, not chunk)
        except UnicodeDecodeError as error:
            bad = data[error.start : error.start + 4].hex()
            raise NotUtf8(offset + error.start, f"{error.reason}: 0x{bad}") from None
        valid = data[:used]
        if errors == "replace" and "\ufffd" in text:
            if put_in := text.count("\ufffd") - valid.count(b"\xef\xbf\xbd"):
                replaced(put_in)
            valid = text.encode()
        tail, offset = data[used:], offset + used
        if valid:
            yield valid


def tidied(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole UTF-8 characters without a byte order mark at the start, and with LF for CRLF."""
    at_start, held_cr = True, b""
    for chunk in chunks:
        if at_start and chunk:
            chunk, at_start = chunk.removeprefix(codecs.BOM_UTF8), False
        data = held_cr + chunk
        held_cr = b"\r" if data.endswith(b"\r") else b""
        if b"\r" in data:
            data = data[: len(data) - len(held_cr)].replace(b"\r\n", b"\n")
        yield data
    yield held_cr


def document(chunks: Iterator[bytes]) -> Iterator[Piece]:
    """One document, cut into pieces after the last line end in 64 KiB, else before a character; none if it is empty."""
    waiting, first = b"", True
    for chunk in chunks:
        waiting += chunk
        start = 0
        while len(waiting) - start > PIECE:
            end = waiting.rfind(b"\n", start, start + PIECE) + 1 or start + PIECE
            while waiting[end] & 0xC0 == 0x80:
                end -= 1
            yield Piece(waiting[start:end], first)
            start, first = end, False
        waiting = waiting[start:]
    if waiting:
        yield Piece(waiting, first)
