"""Recordings in which something that the programs do for safety was left out or done in another order.

Each must cost something that the readers miss: a simulator that does not see that would see nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from crash.explorer import states
from crash.ops import Op, Recording
from crash.readers import Readers
from crash.truth import Truth

SPAN = 200
"""Deeds after a place of the mutation within which the loss must show: on a busy machine others come in between."""
PLACES = 3
"""Places of a mutation that are looked at."""


@dataclass(frozen=True)
class Mutation:
    """`apply` gives the mutated deeds and the places at which they differ; none if the mutation does not fit."""

    name: str
    apply: Callable[[list[Op]], tuple[list[Op], list[int]]]

    def of(self, recording: Recording) -> tuple[Recording, list[int]]:
        """The mutated recording and the first few places."""
        ops, places = self.apply(recording.ops)
        return Recording(_in_time(ops), recording.folders), places


def losses(mutation: Mutation, recording: Recording, truth: Truth, folder: Path) -> Iterator[list[str]]:
    """What the readers say of the states around the first places of the mutation; nothing where nothing is lost."""
    mutated, places = mutation.of(recording)
    assert places, f"nothing was done that fits {mutation.name}"
    readers = Readers(folder, truth)
    for place in places[:PLACES]:
        for state in states(mutated, start=place, stop=place + SPAN):
            if found := readers.complaints(state):
                yield [f"{state.fate}, after {state.prefix} deeds", *found]


def places(ops: list[Op], what: str) -> list[int]:
    """Where deeds that match stand."""
    return [i for i, op in enumerate(ops) if re.fullmatch(what, op.text)]


def _in_time(ops: list[Op]) -> list[Op]:
    """One deed after another: what was moved begins and ends where it stands now."""
    return [replace(op, begin=i, end=i) for i, op in enumerate(ops)]


def without(what: str, after: str = "") -> Mutation:
    """Leaves out each deed that matches `what`; with `after`, only right after one of the same process that does."""

    def apply(ops: list[Op]) -> tuple[list[Op], list[int]]:
        left: list[Op] = []
        places = []
        for i, op in enumerate(ops):
            if re.fullmatch(what, op.text) and (not after or re.fullmatch(after, _before(ops, i))):
                places.append(len(left))
            else:
                left.append(op)
        return left, places

    return Mutation(f"without: {what}" + (f" after: {after}" if after else ""), apply)


def earlier(what: str, before: str) -> Mutation:
    """Moves each deed that matches `what` to before the last deed of its process that matches `before`."""

    def apply(ops: list[Op]) -> tuple[list[Op], list[int]]:
        moved, places = list(ops), []
        for i, op in enumerate(ops):
            if re.fullmatch(what, op.text) and (to := _last(ops, i, before)) is not None:
                moved.insert(to, moved.pop(i))
                places.append(to)
        return moved, places

    return Mutation(f"{what} before: {before}", apply)


def later(first: str, last: str, behind: str) -> Mutation:
    """Moves each whole stretch of one process, from `first` through `last`, to behind its next `behind`."""

    def apply(ops: list[Op]) -> tuple[list[Op], list[int]]:
        moved, places = list(ops), []
        for op in [op for op in ops if re.fullmatch(first, op.text)]:
            i = moved.index(op)
            mine = [k for k in range(i, len(moved)) if moved[k].process == op.process]
            texts = [moved[k].text for k in mine]
            end = next((n for n, text in enumerate(texts) if re.fullmatch(last, text)), None)
            target = next((n for n, text in enumerate(texts) if re.fullmatch(behind, text)), None)
            if end is None or target is None or target <= end:
                continue
            stretch = [moved[k] for k in mine[: end + 1]]
            anchor = moved[mine[target]]
            moved = [other for other in moved if all(other is not each for each in stretch)]
            at = next(k for k, other in enumerate(moved) if other is anchor) + 1
            moved[at:at] = stretch
            places.append(at - 1)
        return moved, places

    return Mutation(f"{first} to {last} behind: {behind}", apply)


def _mine(ops: list[Op], i: int) -> Iterator[int]:
    """The places of earlier deeds of the same process, newest first."""
    return (k for k in range(i - 1, -1, -1) if ops[k].process == ops[i].process)


def _before(ops: list[Op], i: int) -> str:
    return next((ops[k].text for k in _mine(ops, i)), "")


def _last(ops: list[Op], i: int, what: str) -> int | None:
    return next((k for k in _mine(ops, i) if re.fullmatch(what, ops[k].text)), None)


TEMP = r"\.\S+\.\d+\.tmp"
BIN, BIN_TEMP = r"step_\d+\.bin", r"\.step_\d+\.bin\.\d+\.tmp"

CHECKPOINT = [
    without(rf"fsync {BIN_TEMP}"),
    without(r"fsync run", after=rf"rename {BIN_TEMP} {BIN}"),
    without(r"fsync \d+\.jsonl"),
    earlier(rf"rename {BIN_TEMP} {BIN}", before=rf"fsync {BIN_TEMP}"),
    later(r"create \.SHA256SUMS\.\d+\.tmp", r"fsync run", behind=rf"rename {BIN_TEMP} {BIN}"),
    earlier(r"write \d+\.jsonl checkpoint", before=rf"rename {BIN_TEMP} {BIN}"),
]
"""What makes a checkpoint durable before anyone hears of it."""

OTHERS = [
    without(r"fsync \.SHA256SUMS\.\d+\.tmp"),
    without(r"fsync run", after=rf"unlink {BIN}"),
    without(r"fsync events"),
    without(r"fsync \.\.state\.json\.\d+\.tmp"),
    without(r"fsync \.\.samples\.json\.\d+\.tmp"),
    without(r"fsync \.loss\.json"),
    without(r"fsync plan\.jsonl"),
    without(r"fsync policy\.next\.toml"),
    without(r"fsync run", after=r"rename policy\.next\.toml policy\.pending\.toml"),
    without(r"fsync step_\d+", after=r"rename \.\.samples\.json\.\d+\.tmp \.samples\.json"),
    without(r"fsync archive"),
    without(r"fsync kept"),
    without(r"fsync \S+", after=r"rename \.run\.\d+\.tmp run"),
    without(r"fsync \S+", after=r"rename \.branch\.\d+\.tmp branch"),
    without(r"fsync \.(run|policy)\.toml\.\d+\.tmp"),
    without(r"fsync \.\w+\.(train|held)\.bin\.\d+\.tmp"),
]
"""Every other sync that something relies on."""
