from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir.plan import SHARE_UNIT, RoundPlan, round_of, round_steps


def plan(**changes: Any) -> RoundPlan:
    fields: dict[str, Any] = {
        "round": 2,
        "first": 5,
        "last": 6,
        "policy": "0-0123456789ab",
        "arms": {"a": "ff" * 8, "b": "00" * 8},
        "shares": {"a": SHARE_UNIT // 4, "b": 3 * SHARE_UNIT // 4},
        "cursors": {"a": 3, "b": 9},
        "credits": {"a": -5, "b": 5},
        "limits": {"a": None, "b": 40},
        "caps": {"a": SHARE_UNIT, "b": SHARE_UNIT},
        "steps": [{"a": 1, "b": 3}, {"b": 4}],
    }
    return RoundPlan(**(fields | changes))


def test_through_json_and_back_among_other_keys() -> None:
    for made in (plan(), plan(steps=None)):
        line = json.loads(json.dumps({"event": "fallback", "reason": "x"} | made.to_json()))
        assert RoundPlan.from_json(line) == made


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round", -1),
        ("round", True),
        ("first", 7),
        ("policy", 3),
        ("arms", ["a"]),
        ("arms", {"a": 1}),
        ("shares", {"a": SHARE_UNIT - 1}),
        ("shares", {"c": SHARE_UNIT}),
        ("shares", {"a": -1, "b": SHARE_UNIT + 1}),
        ("cursors", {"a": -1}),
        ("cursors", {"a": 1.0}),
        ("credits", {"a": 0.5}),
        ("limits", {"a": "1"}),
        ("caps", {"a": -1}),
        ("steps", [{"a": 1}]),
        ("steps", [{"a": 1}, {"a": -1}]),
        ("steps", {}),
    ],
)
def test_what_does_not_fit_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        RoundPlan.from_json(plan(**{name: value}).to_json())


def test_a_missing_field_is_named() -> None:
    line = plan().to_json()
    del line["limits"]
    with pytest.raises(ValueError, match="without limits"):
        RoundPlan.from_json(line)


@given(step=st.integers(1, 10**9), size=st.integers(1, 20))
def test_every_step_lies_in_its_round(step: int, size: int) -> None:
    first, last = round_steps(round_of(step, size), size)
    assert first <= step <= last and last - first + 1 == size and last % size == 0
