"""Documents in lines of JSON: the field `text`, or chat `messages` written out as `role: content`.

A line up to 4 MiB is parsed at once, a longer one piece by piece, with the same result, so a line of a gigabyte needs
no more memory than a short one. Pure; imports `jsonscan`. ValueError says what is wrong with a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from andrea_corpus.jsonscan import HELD, Scanner

LONG = 4 << 20


def documents(chunks: Iterator[bytes]) -> Iterator[tuple[int, Iterator[str]]]:
    """Number (from 1) and text of every line that is not blank; a text comes in pieces and is read before the next.

    `chunks` are whole UTF-8 characters. Reading a text raises ValueError when its line is not as it must be.
    """
    for number, line in enumerate(_lines(chunks), 1):
        if isinstance(line, _Long):
            yield number, _LongLine(line).text()
            for _ in line:  # what is left of it after an error that was put up with
                pass
        elif line and not line.isspace():
            yield number, _short(line)


def rendered(messages: Any) -> Iterator[str]:
    """A chat as text: `role: content` and an empty line, a message each; a message without content is left out."""
    if not isinstance(messages, list):
        raise ValueError("messages is not a list")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError("a message without a role")
        content = message.get("content")
        if content is None:
            continue
        if not isinstance(content, str):
            raise ValueError("the content of a message is not text")
        yield f"{message['role']}: {content}\n\n"


class _Long:
    """A line that has grown long: its chunks as they come; `after` is what follows its end in the last one."""

    def __init__(self, start: bytes, chunks: Iterator[bytes]) -> None:
        self._start, self._chunks, self._ended = start, chunks, False
        self.after: bytes | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._start:
            start, self._start = self._start, b""
            return start
        if self._ended:
            raise StopIteration
        chunk = next(self._chunks, None)
        if chunk is None:
            self._ended = True
            raise StopIteration
        line, end, after = chunk.partition(b"\n")
        if end:
            self._ended, self.after = True, after
        return line


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes | _Long]:
    """Lines without their ends."""
    waiting: list[bytes] = []
    size, after = 0, None
    while (chunk := after if after is not None else next(chunks, None)) is not None:
        after = None
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            yield b"".join([*waiting, part])
            waiting, size = [], 0
        waiting.append(rest)
        size += len(rest)
        if size > LONG:
            line = _Long(b"".join(waiting), chunks)
            waiting, size = [], 0
            yield line
            after = line.after
    yield b"".join(waiting)


def _short(line: bytes) -> Iterator[str]:
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    given = [name for name in ("text", "messages") if name in record]
    if len(given) != 1:
        raise ValueError(_one_of(given, record))
    if given == ["messages"]:
        yield from rendered(record["messages"])
    elif not isinstance(record["text"], str):
        raise ValueError("text is not a string")
    else:
        yield record["text"]


def _one_of(given: list[str], keys: Any) -> str:
    return (
        "both text and messages"
        if given
        else f"neither text nor messages, but {', '.join(list(keys)[:6]) or 'nothing'}"
    )


class _LongLine:
    """The record of one long line, pulled from its chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._json = Scanner(chunks)

    def text(self) -> Iterator[str]:
        """The document, in pieces."""
        given: list[str] = []
        keys: list[str] = []
        if not self._json.peek():
            return  # a long line of blanks
        if self._json.peek() != b"{":
            raise ValueError("not a JSON object")
        try:
            for key in self._json.members():
                if key in ("text", "messages"):
                    if given:
                        raise ValueError(_one_of(["text", "messages"], keys))
                    given.append(key)
                    yield from self._messages() if key == "messages" else self._json.string_or("text is not a string")
                else:
                    keys.append(key)
                    self._json.skip()
        except RecursionError:
            raise ValueError("nested too deep") from None
        if not given:
            raise ValueError(_one_of(given, keys))
        if self._json.peek():
            raise ValueError("something follows the object")

    def _messages(self) -> Iterator[str]:
        if self._json.peek() != b"[":
            raise ValueError("messages is not a list")
        for _ in self._json.elements():
            if self._json.peek() != b"{":
                raise ValueError("a message without a role")
            role, early = None, None
            for key in self._json.members():
                if key == "role":
                    role = "".join(self._json.string_or("a message without a role"))
                elif key != "content" or self._json.peek() == b"n":
                    self._json.skip()
                elif role is None:
                    early = self._early()
                else:
                    yield f"{role}: "
                    yield from self._json.string_or("the content of a message is not text")
                    yield "\n\n"
            if role is None:
                raise ValueError("a message without a role")
            if early is not None:
                yield f"{role}: {early}\n\n"

    def _early(self) -> str:
        """A content that stands before its role."""
        parts, size = [], 0
        for part in self._json.string_or("the content of a message is not text"):
            parts.append(part)
            size += len(part)
            if size > HELD:
                raise ValueError("in a line this long, a message's role must stand before its content")
        return "".join(parts)
