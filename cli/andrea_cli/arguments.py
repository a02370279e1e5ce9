"""What the values of options may be: what does not fit is told as argparse tells it. Pure; standard library only."""

from __future__ import annotations

from argparse import ArgumentTypeError


def seconds(text: str) -> float:
    """A span of time, more than 0 and finite."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def count(text: str) -> int:
    """How many: 1 or more."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)
