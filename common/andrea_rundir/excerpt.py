"""The part of a run's events that a checkpoint stands on: what a branch from it takes along, byte for byte.

A process may have gone back: steps are then on record more than once, and of a checkpoint that was made again only
one making is the file at hand. Its digest tells which. What belongs to the checkpoint is everything that the processes
up to and including the one that made it said of steps up to its own. Reads only. Standard library and this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from andrea_rundir import events
from andrea_rundir.events import Event, segments
from andrea_rundir.faults import BadConfig

_LINE = re.compile(rb'\{"event":"([a-z]+)","time":"([^"]*)",(?:"step":(\d+),)?')
_POLICY = re.compile(rb'"policy":"([^"]+)"')


@dataclass
class _Making:
    """One time that the checkpoint was made: by which process, counted from 1, and what became of it."""

    process: int
    snapshot: Event
    digest: str | None = None
    """None when that was never recorded: the process was killed, or is about to."""


@dataclass
class Origins:
    """What the events say of a checkpoint, and where its history ends."""

    step: int
    digests: set[str] = field(default_factory=set)
    """All that were ever recorded of files of that step."""
    processes: int | None = None
    """How many processes belong to its history; None, so all, when none is known to have made it."""
    snapshot: Event | None = None
    start: Event | None = None
    """The start event of the process that made it, or else of the last one before its step."""
    policies: dict[str, Event] = field(default_factory=dict)
    """What start events say of policies (`id`, `text`, `arms`), by id."""
    last: dict[str, Event] = field(default_factory=dict)
    """The last step event of each policy, by its id, oldest policy first."""
    void: set[tuple[int, str]] = field(default_factory=set)
    """Step and time of the step events up to its step that belong to another history."""

    def owns(self, process: int, step: int | None) -> bool:
        """Whether an event of a step, said by a process, belongs to the history."""
        return (self.processes is None or process <= self.processes) and (step is None or step <= self.step)

    def has_entry(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry of `.loss.json` belongs to the history."""
        return entry["step"] <= self.step and (entry["step"], entry["time"]) not in self.void


def origins(folder: Path, step: int, digest: str) -> Origins:
    """Find the history of the checkpoint of `step` whose file has that SHA-256 (hex); BadConfig for a spoilt event."""
    found, makings = Origins(step), list[_Making]()
    for process, kind, line in _lines(folder, (b"snapshot", b"checkpoint")):
        event = _event(line)
        if event["step"] != step:
            continue
        if kind == b"snapshot":
            makings.append(_Making(process, event))
        elif (told := event.get("digest")) is not None:
            found.digests.add(told)
            if makings:
                makings[-1].digest = told
    same = [making for making in makings if making.digest == digest]
    unknown = [making for making in makings if making.digest is None]
    if making := (same[:1] or unknown[-1:]):
        found.processes, found.snapshot = making[0].process, making[0].snapshot
    _gather(folder, found)
    return found


def excerpt(folder: Path, history: Origins) -> Iterator[tuple[str, bytes]]:
    """Name and content of every segment that has a part of the history, in order."""
    name, kept = "", list[bytes]()
    for path, process, _, step, line in _scan(folder):
        if path.name != name:
            if kept:
                yield name, b"".join(kept)
            name, kept = path.name, []
        if history.owns(process, step):
            kept.append(line)
    if kept:
        yield name, b"".join(kept)


def _gather(folder: Path, found: Origins) -> None:
    """Starts, policies and last steps of the history, and the steps that are none of it."""
    steps: dict[str, bytes] = {}
    for _, process, kind, step, line in _scan(folder):
        owned = found.owns(process, step)
        if kind == b"start" and owned:
            found.start = _event(line)
            if policy := found.start.get("policy"):
                found.policies.setdefault(policy["id"], policy)
        elif kind == b"step" and owned and (match := _POLICY.search(line)):
            policy_id = match[1].decode()
            if steps and policy_id != next(reversed(steps)):
                steps.pop(policy_id, None)
            steps[policy_id] = line
        elif kind == b"step" and not owned and step is not None and step <= found.step:
            found.void.add((step, _event(line)["time"]))
    found.last = {policy_id: _event(line) for policy_id, line in steps.items()}


def _lines(folder: Path, kinds: tuple[bytes, ...]) -> Iterator[tuple[int, bytes, bytes]]:
    return ((process, kind, line) for _, process, kind, _, line in _scan(folder) if kind in kinds)


def _scan(folder: Path) -> Iterator[tuple[Path, int, bytes, int | None, bytes]]:
    """Segment, process, kind, step and text of every event that can be read; a round's step is its first one."""
    process = 0
    for path in segments(folder):
        with path.open("rb") as file:
            for line in file:
                match = _LINE.match(line)
                if match is None or not line.endswith(b"}\n"):
                    continue
                step = None if match[3] is None else int(match[3])
                if step is None:
                    step = _event(line).get("first" if match[1] in (b"round", b"fallback") else "step")
                process += match[1] == b"start"
                yield path, process, match[1], step, line


def _event(line: bytes) -> Event:
    try:
        return events.parse(line)
    except ValueError as error:
        text = line[:80].decode(errors="replace")
        raise BadConfig("an event cannot be read", found=f"{text}...", expected=f"JSON: {error}") from None
