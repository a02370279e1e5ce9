"""Both readers of JSON: what they agree on, and what neither takes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir.jsontext import loads, quick

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_both_read_what_was_written_bit_for_bit(value: object) -> None:
    line = json.dumps(value, separators=(",", ":")).encode()
    for found in (loads(line), quick(line), quick(line + b"\n")):
        assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nan",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b'"\xff"',
        b'"a\nb"',
        b"[1",
        b"[1] x",
        b"[1]\0",
        b"{'a':1}",
        b"[" * 100_000,
        b'"' + b"a" * 100,
    ],
)
def test_neither_takes_what_no_writer_of_ours_writes(line: bytes) -> None:
    for reader in (loads, quick):
        with pytest.raises(ValueError):
            reader(line)


@pytest.mark.parametrize("line", [b" [1]", b"[1] ", b"[1]\n\n", b"\n[1]", b"[1] \n"])
def test_a_line_holds_nothing_around_its_value(line: bytes) -> None:
    with pytest.raises(ValueError, match="around"):
        quick(line)
