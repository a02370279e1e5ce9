"""The entries of `.loss.json`: made of step events, written as lines, read.

The file is a JSON array, a line an entry, that ends in `]` and spaces. Writes no file. Imports the standard library and
our events, jsontext, lines and shapes: the command line shows the smoothed loss without numpy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from andrea_rundir import jsontext, shapes
from andrea_rundir.events import Event
from andrea_rundir.lines import back

Entry = dict[str, Any]
"""step, attempt, loss, ema, arms, lr, grad_norm, tokens, seconds, policy, flags, time."""

OPEN, CLOSE, COMMA = b"[\n", b"\n]", b",\n"
HEAD, ATTEMPT = b'{"step":', b'"attempt":'
GROWTH = 64 << 10
"""Spaces behind the array, at least, and what the file grows by."""

FIGURES = ("loss", "arms", "lr", "grad_norm", "tokens", "policy", "flags")
"""What makes two records of a step equal; clocks do not."""

EMA_KEEP = 0.99
"""Of the smoothed loss, from one step to the next: it looks back about 100 steps."""


def encode(entry: Entry) -> bytes:
    """One line without its end; step and attempt come first. Floats by repr; ValueError for NaN and infinity."""
    ordered = {"step": entry["step"], "attempt": entry["attempt"], **entry}
    return json.dumps(ordered, separators=(",", ":"), allow_nan=False).encode()


def parse(line: bytes) -> Entry:
    """The entry in a line, whole, each field of its type; ValueError for anything else."""
    entry = jsontext.quick(line)
    if not (type(entry) is dict and shapes.is_entry(entry)):
        raise ValueError("no entry")
    return entry


def read(path: Path) -> Iterator[Entry]:
    """All whole entries in the order of the file, the superseded ones too; a torn tail is left out."""
    return (entry for _, entry in _lines(path))


def excerpt(path: Path, wanted: Callable[[Entry], bool]) -> bytes:
    """A whole file of the entries in `path` that are `wanted`, each byte for byte as it stands there."""
    lines = [line for line, entry in _lines(path) if wanted(entry)]
    return OPEN[:1] + b"\n" * bool(lines) + COMMA.join(lines) + CLOSE + b" " * GROWTH


def _lines(path: Path) -> Iterator[tuple[bytes, Entry]]:
    """The line of every whole entry, and what it says."""
    try:
        with path.open("rb") as file:
            for raw in file:
                if raw.startswith(HEAD):
                    line = raw.rstrip(b",\n")
                    try:
                        yield line, parse(line)
                    except ValueError:
                        return
    except FileNotFoundError:
        return


def read_back(path: Path) -> Iterator[Entry]:
    """All whole entries, the last of the file first: cheap for the newest of a long history."""
    try:
        for line in back(path):
            if line.startswith(HEAD):
                try:
                    yield parse(line.rstrip(b","))
                except ValueError:  # torn
                    continue
    except FileNotFoundError:
        return


def latest(entries: Iterable[Entry]) -> dict[int, Entry]:
    """The entry in force of each step, by step: the last one recorded."""
    found: dict[int, Entry] = {}
    for entry in entries:
        found[entry["step"]] = entry
    return dict(sorted(found.items()))


def smooth(before: float | None, loss: float | None) -> float | None:
    """The smoothed loss after one more step (exponential moving average); a step without a loss leaves it."""
    if loss is None:
        return before
    return loss if before is None else EMA_KEEP * before + (1 - EMA_KEEP) * loss


def entry_of(event: Event, attempt: int, before: float | None) -> Entry:
    """The entry of a step event; `before` is the smoothed loss of the step before. KeyError for no step event."""
    return {
        "step": event["step"],
        "attempt": attempt,
        "loss": event["loss"],
        "ema": smooth(before, event["loss"]),
        "arms": event["arms"],
        "lr": event["lr"],
        "grad_norm": event["grad_norm"],
        "tokens": event["tokens"],
        "seconds": event["seconds"],
        "policy": event["policy"],
        "flags": event["flags"],
        "time": event["time"],
    }
