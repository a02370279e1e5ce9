"""How verbs speak: lines for people, or one JSON object with "schema": 1; spans, sizes and counts as people say them.

Writes to stdout only. Standard library only.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable, Mapping
from itertools import pairwise

from andrea_rundir.faults import Fault

SCHEMA = 1
"""Raised when a field of any verb's JSON changes its meaning or goes away."""


def show(args: Namespace, facts: Mapping[str, object], lines: Iterable[str]) -> None:
    """Print `facts` as one JSON object when --json was given, else the lines."""
    print("\n".join([encoded(facts)] if args.json else lines))


def encoded(facts: Mapping[str, object]) -> str:
    """The one JSON object, in one line."""
    return json.dumps({"schema": SCHEMA, **facts}, allow_nan=False)


def show_error(fault: Fault) -> None:
    """Print a fault as JSON."""
    print(encoded({"error": {**described(fault), "exit_code": fault.exit_code}}))


def described(fault: Fault) -> dict[str, str]:
    """The same facts as its lines."""
    return {name: getattr(fault, name) for name in ("what", "where", "found", "expected", "todo")}


def span(seconds: float) -> str:
    """A span of time in its two largest units: `2 d 4 h`, `6 min 12 s`, `9 s`."""
    whole = max(0, round(seconds))
    units = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    for (size, name), (small, small_name) in pairwise(units):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{whole} s"


def counted(count: int, noun: str) -> str:
    """A number of things: `1 thread`, `2 threads`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """A number of bytes in decimal units: `1.18 GB`."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
