"""What may be found after a power cut, and what must be: taken from a recording in which nothing went wrong.

Promised is a checkpoint from the moment on at which its `checkpoint` event is written: nobody hears of it earlier. Told
is what a command said by ending with 0.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from andrea_rundir.names import checkpoint_step
from crash.disk import Disk, Tree
from crash.ops import Names, Recording, Write
from crash.scenario import BRANCH, RUN, TOLD
from harness.twin import CLOCKS

Event = dict[str, Any]


@dataclass
class Truth:
    """`whole`: path in the run to every content that was ever put there under that name in one go; `at_first`: the
    files of the run as it was made."""

    whole: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    at_first: dict[str, bytes] = field(default_factory=dict)
    branch: Tree = field(default_factory=dict)
    """The run that was forked off, as it was made: paths from the root of the recording."""
    checkpoints: dict[int, bytes] = field(default_factory=dict)
    event_lines: set[bytes] = field(default_factory=set)
    steps: dict[int, Event] = field(default_factory=dict)
    snapshots: dict[int, Event] = field(default_factory=dict)
    entries: dict[int, Event] = field(default_factory=dict)
    loss: bytes = b""
    plan_lines: set[bytes] = field(default_factory=set)


def timeless(event: Event) -> Event:
    """What is the same in every replay."""
    return {name: value for name, value in event.items() if name not in CLOCKS}


def learn(recording: Recording) -> Truth:
    """Everything about a run that went well."""
    truth = Truth()
    disk = Disk(recording)
    before: dict[str, bytes | None] = {}
    for op in recording.ops:
        disk.do(op)
        if isinstance(op.deed, Names):
            now = disk.memory()
            for path, content in now.items():
                if content is not None and path.startswith(RUN + "/") and before.get(path) != content:
                    truth.whole[path.removeprefix(RUN + "/")].add(content)
            if RUN in now and RUN not in before:
                inside = {path.removeprefix(RUN + "/"): content for path, content in now.items()}
                truth.at_first = {path: content for path, content in inside.items() if content is not None}
                truth.at_first.pop(TOLD, None)
            if BRANCH in now and BRANCH not in before:
                truth.branch = {path: content for path, content in now.items() if path.startswith(f"{BRANCH}/")}
            before = now
    _read(truth, disk.memory())
    return truth


def _read(truth: Truth, end: dict[str, bytes | None]) -> None:
    for path, contents in list(truth.whole.items()):
        step = checkpoint_step(path)
        if step is not None:
            assert len(contents) == 1, f"{path} was published twice and came out differently"
            truth.checkpoints[step] = next(iter(contents))
    for path, content in end.items():
        if path.startswith(f"{RUN}/events/") and content is not None:
            truth.event_lines |= set(content.split(b"\n")) - {b""}
    for line in truth.event_lines:
        event = json.loads(line)
        if event["event"] in ("step", "snapshot"):
            known = truth.steps if event["event"] == "step" else truth.snapshots
            assert timeless(known.setdefault(event["step"], event)) == timeless(event), "a replay that differs"
    truth.loss = end[f"{RUN}/.loss.json"] or b""
    truth.entries = {entry["step"]: timeless(entry) for entry in json.loads(truth.loss)}
    truth.plan_lines = set((end[f"{RUN}/plan.jsonl"] or b"").split(b"\n")) - {b""}


@dataclass(frozen=True)
class Promises:
    """What had been said by a moment: the newest checkpoint, -1 for none, and what commands had said."""

    checkpoint: int = -1
    told: frozenset[str] = frozenset()


def promises(recording: Recording) -> list[Promises]:
    """By number of deeds done."""
    now = Promises()
    found = [now]
    told_in = next(
        node for op in recording.ops if isinstance(op.deed, Names) for name, node in op.deed.changes if name == TOLD
    )
    for op in recording.ops:
        if isinstance(op.deed, Write):
            if op.deed.node == told_in:
                now = Promises(now.checkpoint, now.told | {op.deed.data.decode().strip()})
            elif op.deed.data.startswith(b'{"event":"checkpoint"'):
                step = json.loads(op.deed.data.split(b"\n")[0])["step"]
                now = Promises(max(now.checkpoint, step), now.told)
        found.append(now)
    return found
