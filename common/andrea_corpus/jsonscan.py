"""A JSON text pulled from its chunks, value by value, so that none of it need be held whole.

Pure; standard library only. ValueError says what is wrong with the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

HELD = 1 << 20
"""Most bytes that are held of one value."""

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+')
_SCALAR = re.compile(rb"[^ \t\r\n,\]}]*")


class Scanner:
    """Where reading has come to in `chunks`, UTF-8."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._data, self._at = chunks, b"", 0

    def string_or(self, otherwise: str) -> Iterator[str]:
        """A string in pieces; ValueError(otherwise) when another value stands here."""
        if self.peek() != b'"':
            raise ValueError(otherwise)
        yield from self.string()

    def string(self) -> Iterator[str]:
        """A string in pieces; a surrogate pair is never cut in two."""
        self._take(b'"')
        while True:
            end = _STRING.match(self._data, self._at).end()  # type: ignore[union-attr]
            done = self._data[end : end + 1] == b'"'
            if not done and len(self._data) - end >= 6:
                raise ValueError("a bad escape in a string")
            raw = self._data[self._at : end]
            part: str = json.loads(b'"' + raw + b'"')
            if not done and part and "\ud800" <= part[-1] <= "\udbff":
                part, end = part[:-1], end - 6
            if part:
                yield part
            self._at = end + done
            if done:
                return
            if not self._more():
                raise ValueError("it ends inside a string")

    def members(self) -> Iterator[str]:
        """The keys of an object; the reader takes each value before it asks for the next."""
        for _ in self._list(b"{", b"}"):
            key = "".join(self.string_or("a key is not a string"))
            self._take(b":")
            yield key

    def elements(self) -> Iterator[None]:
        """Once before each element of a list; the reader takes it before it asks for the next."""
        return self._list(b"[", b"]")

    def _list(self, opening: bytes, closing: bytes) -> Iterator[None]:
        self._take(opening)
        if self.peek() == closing:
            self._take(closing)
            return
        while True:
            yield
            if self._take(b"," + closing) == closing:
                return

    def skip(self) -> None:
        """Any value."""
        first = self.peek()
        if first == b'"':
            for _ in self.string():
                pass
        elif first == b"{":
            for _ in self.members():
                self.skip()
        elif first == b"[":
            for _ in self.elements():
                self.skip()
        else:
            while (end := _SCALAR.match(self._data, self._at).end()) == len(self._data) and self._more():  # type: ignore[union-attr]
                if len(self._data) - self._at > HELD:
                    raise ValueError("a number too long")
            json.loads(self._data[self._at : end])
            self._at = end

    def _take(self, allowed: bytes) -> bytes:
        """The next byte that is no blank, which must be one of these."""
        found = self.peek()
        if not found or found not in allowed:
            wanted = " or ".join(chr(byte) for byte in allowed)
            raise ValueError(f"expected {wanted}, found {found.decode(errors='replace') or 'the end'}")
        self._at += 1
        return found

    def peek(self) -> bytes:
        """The next byte that is no blank; empty at the end."""
        while True:
            self._at = _SPACE.match(self._data, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._data) or not self._more():
                return self._data[self._at : self._at + 1]

    def _more(self) -> bool:
        """Let go of what has been read and get more; False at the end."""
        for chunk in self._chunks:
            if chunk:
                self._data, self._at = self._data[self._at :] + chunk, 0
                return True
        return False
