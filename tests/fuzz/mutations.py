"""Files as damage and strangers make them: strategies that hurt the bytes of a good one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

DEEP = 3_000
"""Levels of nesting: far more than any recursion survives."""

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 2**31, 2**63, 2**64, 10**30, 10**400, -(10**400), 1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "\0", "\ud800", "../../etc/passwd", "/etc/passwd", "1e999"),
    *([], {}, [[]], [None], {"": None}, [1, 2], {"step": {}}, "9" * 5000),
)
"""Values that JSON can carry and no writer of ours would write there."""

RAW = (
    b"[" * DEEP,
    b'{"a":' * DEEP,
    b"1" * 10_000,
    b"1e999",
    b"NaN",
    b'"\\ud800"',
    b"\0",
    b"\xff",
    b'"' + b"x" * 70_000,
)

TOML = (
    *("true", "-1", "0", "1e400", "nan", "inf", "9" * 5000, '""', '"\\u0000"', '"../x"', "[]", "{}", "[[[1]]]"),
    *("1979-05-27T07:32:00Z", "9223372036854775808", "0.5", '"x"', "[" * 5000 + "]" * 5000, "'''\n\n'''", "1979-05-27"),
)


@st.composite
def _flipped(draw: st.DrawFn, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@st.composite
def _cut(draw: st.DrawFn, good: bytes) -> bytes:
    one, other = sorted((draw(st.integers(0, len(good))), draw(st.integers(0, len(good)))))
    return draw(st.sampled_from((good[:one], good[one:], good[:one] + good[other:], good[:one] + bytes(other - one))))


@st.composite
def _lines(draw: st.DrawFn, good: bytes) -> bytes:
    lines = good.split(b"\n")
    i, j = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(("drop", "double", "swap", "other", "between"))):
        case "drop":
            del lines[i]
        case "double":
            lines.insert(j, lines[i])
        case "swap":
            lines[i], lines[j] = lines[j], lines[i]
        case "other":
            lines[i] = draw(st.sampled_from(RAW) | st.binary(max_size=50))
        case _:
            lines.insert(i, draw(st.sampled_from(RAW) | st.binary(max_size=50)))
    return b"\n".join(lines)


def odd() -> st.SearchStrategy[Any]:
    """A JSON value that has no place where it is put."""
    simple = st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=5)
    return simple | st.lists(simple, max_size=3) | st.dictionaries(st.text(max_size=3), simple, max_size=3)


@st.composite
def _value(draw: st.DrawFn, good: bytes) -> bytes:
    """One value of one line of JSON (or of the whole file), or one key, is another."""
    lines = good.split(b"\n")
    places = [i for i, line in enumerate(lines) if _parsed(line) is not None]
    if not places and _parsed(good) is None:
        return draw(_lines(good))
    i = draw(st.sampled_from(places)) if places else -1
    line = lines[i] if places else good
    end = b"," if line.endswith(b",") else b""
    found = _hurt(draw, _parsed(line))
    text = json.dumps(found, separators=(",", ":")).encode() + end
    if not places:
        return text + b"\n"
    lines[i] = text
    return b"\n".join(lines)


def _parsed(line: bytes) -> Any:
    try:
        found = json.loads(line.rstrip(b","))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, (dict, list)) and found else None


def _hurt(draw: st.DrawFn, value: Any) -> Any:
    """Go down some way; put something else there, or leave it out."""
    if not (isinstance(value, (dict, list)) and value) or draw(st.integers(0, 3)) == 0:
        return draw(odd())
    keys = sorted(value) if isinstance(value, dict) else range(len(value))
    key = draw(st.sampled_from(list(keys)))
    if draw(st.integers(0, 5)) == 0:
        del value[key]
    else:
        value[key] = _hurt(draw, value[key])
    return value


@st.composite
def _toml(draw: st.DrawFn, good: bytes) -> bytes:
    lines = good.split(b"\n")
    places = [i for i, line in enumerate(lines) if b" = " in line]
    i = draw(st.sampled_from(places))
    name = lines[i].partition(b" = ")[0]
    lines[i] = name + b" = " + draw(st.sampled_from(TOML)).encode()
    return b"\n".join(lines)


def mutated(good: bytes) -> st.SearchStrategy[bytes]:
    """A good file, hurt once or twice; now and then something that never was one."""
    once = _once(good)
    return once | once | once.flatmap(lambda data: _once(data) if data else once) | st.binary(max_size=200)


def _once(good: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(_value(good), _value(good), _lines(good), _cut(good), _flipped(good), st.sampled_from(RAW))


def mutated_toml(good: bytes) -> st.SearchStrategy[bytes]:
    """The same for TOML."""
    return st.one_of(
        _toml(good), _toml(good), _lines(good), _cut(good), _flipped(good), st.binary(max_size=200),
        st.sampled_from((b"a = " + b"[" * DEEP, b"a." * DEEP + b"a = 1", b"[a]\n" * 2, b"[[" + b"a." * 2000 + b"a]]")),
    )  # fmt: skip
