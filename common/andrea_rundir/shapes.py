"""What the fields of an event and of an entry may hold: whoever reads one relies on it and asks no more.

An entry is whole. Of an event a field that is there has its type; whether all are there that a reader needs, `is_whole`
says, but for the step of a kind that is of one, which always is.
Pure. Standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[[Any], bool]

MAX_STEP = (1 << 31) - 1
"""A checkpoint's header counts steps in an int32."""
_LARGEST = sys.float_info.max
_LOSS = 2.0**128
"""Beyond any float32, and far enough from the largest float64 to be summed and squared."""
_COUNT = 1 << 63


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether all is there that a step's event and its entry have in common, and of its type.

    Written out, since it is asked once for each of a history's lines; what cannot be compared is a TypeError.
    """
    try:
        step, tokens, loss, norm = record["step"], record["tokens"], record["loss"], record["grad_norm"]
        for pulls, mean, size in record["arms"].values():
            if not (type(pulls) is type(size) is int and 0 <= pulls < _COUNT and 0 <= size < _COUNT):
                return False
            if not (mean is None or -_LOSS <= mean <= _LOSS):
                return False
        return (
            type(step) is type(tokens) is int
            and 0 <= step <= MAX_STEP
            and 0 <= tokens < _COUNT
            and (loss is None or -_LOSS <= loss <= _LOSS)
            and (norm is None or -_LARGEST <= norm <= _LARGEST)
            and -_LARGEST <= record["lr"] <= _LARGEST
            and -_LARGEST <= record["seconds"] <= _LARGEST
            and type(record["policy"]) is type(record["time"]) is str
            and type(record["flags"]) is list
            and (not record["flags"] or all(map(is_text, record["flags"])))
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def is_entry(record: Mapping[str, Any]) -> bool:
    """The same of an entry, and of what it has besides."""
    attempt = record.get("attempt")
    try:
        return type(attempt) is int and 0 < attempt <= MAX_STEP and is_loss(record["ema"]) and is_record(record)
    except (KeyError, TypeError):
        return False


def is_loss(value: Any) -> bool:
    """Nats a token, or None for none."""
    return value is None or ((type(value) is float or type(value) is int) and -_LOSS <= value <= _LOSS)


def _is_arm(pulls: Any, loss: Any, size: Any) -> bool:
    return is_count(pulls) and is_loss(loss) and is_count(size)


def is_number(value: Any) -> bool:
    """Any finite number but a truth value."""
    return (type(value) is float or type(value) is int) and -_LARGEST <= value <= _LARGEST


def is_int(value: Any) -> bool:
    """An integer within 64 bits; True and False are none."""
    return type(value) is int and -_COUNT <= value < _COUNT


def is_count(value: Any) -> bool:
    """An integer from 0 on, within 64 bits."""
    return type(value) is int and 0 <= value < _COUNT


def is_step(value: Any) -> bool:
    """The number of a step, 0 for before the first."""
    return type(value) is int and 0 <= value <= MAX_STEP


def is_text(value: Any) -> bool:
    """A string."""
    return type(value) is str


def _or_none(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _of(kind: type) -> Test:
    return lambda value: type(value) is kind


def _table(test: Test) -> Test:
    return lambda value: type(value) is dict and all(map(test, value.values()))


def _list(test: Test) -> Test:
    return lambda value: type(value) is list and all(map(test, value))


def _is_sample(value: Any) -> bool:
    """A text, and whether it runs in circles."""
    if type(value) is not dict or not {"prompt", "text", "looped"} <= value.keys():
        return False
    return is_text(value["prompt"]) and is_text(value["text"]) and _or_none(is_text)(value.get("why"))


def _is_recipe(value: Any) -> bool:
    """What a start says of its policy."""
    return type(value) is dict and all(map(is_text, (value.get("id"), value.get("text")))) and _ARMS(value.get("arms"))


_ARMS = _table(is_text)
_LOOSE = _or_none(is_number)

ANY: Mapping[str, Test] = {"event": is_text, "time": is_text, "step": _or_none(is_step), "seconds": _LOOSE}

EVENTS: Mapping[str, Mapping[str, Test]] = {
    "start": {"step": is_step, "attempt": is_count, "furthest": is_count, "config": _of(dict), "policy": _is_recipe},
    "step": {
        "step": is_step,
        "loss": is_loss,
        "arms": _table(lambda value: type(value) is list and len(value) == 3 and _is_arm(*value)),
        "lr": is_number,
        "grad_norm": _LOOSE,
        "tokens": is_count,
        "seconds": is_number,
        "policy": is_text,
        "flags": _list(is_text),
        "cursors": _table(is_count),
        "credits": _table(is_int),
    },
    "round": {"first": is_step, "last": is_step, "policy": is_text, "arms": _ARMS, "policy_text": is_text},
    "snapshot": {"step": is_step, "cursors": _table(is_count), "credits": _table(is_int), "guard": _of(dict)},
    "checkpoint": {"step": is_step, "digest": is_text, "file": is_text, "bytes": is_count, "reason": is_text},
    "probe": {"step": is_step, "arms": _table(_LOOSE), "mean": _LOOSE},
    "audit": {
        "step": is_step,
        "digest": _or_none(is_text),
        "looped": is_count,
        "score": is_number,
        "alarm": _of(bool),
        "samples": _list(_is_sample),
    },
    "card": {
        "step": is_step,
        **dict.fromkeys(("memory", "memory_total", "temperature", "power", "power_limit"), _LOOSE),
    },
    "warning": {"what": is_text, "detail": is_text},
    "stop": {"reason": is_text},
    "halt": {"reason": is_text, "cause": is_text},
}
"""By kind, over ANY."""


_WHOLE: Mapping[str, frozenset[str]] = {
    "snapshot": frozenset({"step", "cursors", "credits", "guard", "round"}),
    "probe": frozenset({"step", "arms", "mean"}),
    "audit": frozenset({"step", "time", "digest", "looped", "score", "alarm", "samples"}),
}


def is_whole(event: Mapping[str, Any]) -> bool:
    """Whether a snapshot, a probe or an audit has all of its fields."""
    return _WHOLE[event["event"]] <= event.keys()


def misfit(event: Mapping[str, Any]) -> str | None:
    """The name of a field that is not of its type, or not there and the step; None when there is none."""
    of_kind = EVENTS.get(event["event"], {})
    if "step" in of_kind and "step" not in event:
        return "step"
    tests = {**ANY, **of_kind}
    return next((name for name, test in tests.items() if name in event and not test(event[name])), None)
