"""The history of a run: `.loss.json` whole, without a gap, and equal to the events that it was made from.

Each line is parsed once and remembered as a digest, so that memory stays small for the longest run. Writes nothing.
Imports `andrea_rundir`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from andrea_cli.soundness import Section
from andrea_rundir import entries, events, sidecars
from andrea_rundir.entries import FIGURES, Entry, entry_of, smooth
from andrea_rundir.names import RunDir
from andrea_rundir.plan import policy_start

REFILL = (
    "bring it back from a copy; or stop andrea-proxy, move .loss.json and .state.json aside and start it again: "
    "it makes both anew from events/"
)
MEND = (
    "stop andrea-proxy, move .state.json aside and start it again: it cuts the file there, keeps the rest in "
    ".loss.json.torn and fills it anew from events/"
)
FIELDS = {"step", "attempt", "ema", "seconds", "time", *FIGURES}


def check(run: RunDir) -> Section:
    """Entries first, then the events beside them."""
    section = Section("history")
    due = _recorded_up_to(run)
    rows = _Rows(section, run.loss)
    for entry in _entries(run.loss, section):
        rows.take(entry)
    _, first = next(events.starts(run.events), (0, {}))
    rows.begins_after(first.get("step"))
    seen = sum(rows.compare(event, where, late=place > due) for event, where, place in _events(run, section))
    section.read(run.loss)
    says = [f"{rows.count:,} entries"]
    if rows.count and not section.findings:
        policies = f"{len(rows.policies):,} " + ("policy" if len(rows.policies) == 1 else "policies")
        says.append(f"no gap from step {rows.first:,} to {rows.last:,} over {policies}")
        says.append(f"equal to what {seen:,} events tell")
    section.say(", ".join(says))
    if rows.unheard:
        section.notes.append(f"entries whose event is gone, as after a power cut: {rows.unheard:,}")
    if rows.waiting:
        section.notes.append(f"steps in events/ that andrea-proxy has not recorded yet: {rows.waiting:,}")
    return section


def _recorded_up_to(run: RunDir) -> tuple[int, int]:
    """Segment and offset up to which the proxy says it has recorded the events."""
    try:
        where = (sidecars.load(run.state) or {})["events"]
        return int(where["segment"]), int(where["offset"])
    except (sidecars.Unusable, KeyError, TypeError, ValueError):
        return 0, 0


def _entries(path: Path, section: Section) -> Iterator[Entry]:
    """The entries of a file that is an array with one a line, up to the first line that is not."""
    if not path.exists():
        return
    with path.open("rb") as file:
        if file.readline() != b"[\n":
            section.find("not a history", path, found="it does not begin with [", todo=MEND)
            return
        more, number = True, 1
        for number, raw in enumerate(file, start=2):
            if raw.strip() == b"]":
                break
            entry = _entry(raw) if more else None
            if entry is None:
                section.find("an entry cannot be read", f"{path}: line {number}", found=_shown(raw), todo=MEND)
                return
            yield entry
            more = raw.endswith(b",\n")
        else:
            section.find("torn", path, found=f"it ends at line {number} without ]", todo=MEND)
            return
        if file.read().strip():
            section.find("something stands behind the end", f"{path}: line {number}", expected="spaces", todo=MEND)


def _entry(raw: bytes) -> Entry | None:
    try:
        entry = entries.parse(raw.removesuffix(b"\n").removesuffix(b","))
    except ValueError:
        return None
    return entry if entry.keys() >= FIELDS else None


def _shown(raw: bytes) -> str:
    return ascii(raw[:60].decode(errors="replace"))


@dataclass(slots=True)
class _Row:
    """The entries of one step: digest of the figures and time, in the order of attempts."""

    attempts: list[tuple[bytes, str]] = field(default_factory=list)
    heard: int = 0
    """Bit i is set when an event equal to attempt i + 1 has been seen."""


class _Rows:
    """All entries, by step."""

    def __init__(self, section: Section, path: Path) -> None:
        self._section, self._path = section, path
        self._rows: dict[int, _Row] = {}
        self._emas: dict[int, float | None] = {}
        self.first, self.last, self.count, self.waiting = 0, 0, 0, 0
        self.policies: list[str] = []

    @property
    def unheard(self) -> int:
        """Entries that no event is equal to."""
        return sum(len(row.attempts) - row.heard.bit_count() for row in self._rows.values())

    def take(self, entry: Entry) -> None:
        """The next entry of the file."""
        step, attempt = entry["step"], entry["attempt"]
        self.count += 1
        if not self.first:
            self.first, self.last = step, step - 1
        row = self._rows.setdefault(step, _Row())
        digest = _digest(entry)
        if attempt <= len(row.attempts):
            twice = "recorded twice" if digest == row.attempts[attempt - 1][0] else "two entries that disagree"
            self._find(f"{twice}, of one attempt", entry, expected="one entry an attempt")
        elif attempt > len(row.attempts) + 1:
            self._find("an attempt is missing", entry, expected=f"attempt {len(row.attempts) + 1} before it")
        elif attempt == 1:
            self._advance(entry)
        row.attempts.append((digest, entry["time"]))
        before = self._emas.get(step - 1)
        if (step - 1 in self._emas or step == self.first) and entry["ema"] != smooth(before, entry["loss"]):
            expected = f"{smooth(before, entry['loss'])}, from the one before and the loss"
            self._find("a smoothed loss does not follow", entry, found=f"{entry['ema']}", expected=expected)
        self._emas[step] = entry["ema"]

    def _advance(self, entry: Entry) -> None:
        """The first record of a step must be of the step after the last, under the policy in force there."""
        step, policy = entry["step"], entry["policy"]
        if step > self.last + 1:
            self._missing(self.last + 1, step - 1)
        elif step <= self.last:
            self._find("out of order", entry, expected=f"a step after {self.last}")
        self.last = max(self.last, step)
        if not self.policies or policy != self.policies[-1]:
            start = _start_of(policy)
            if start is None or (start != step - 1 if self.policies else start > step - 1):
                self._find("a policy begins where it should not", entry, found=policy, expected=f"{step - 1}-...")
            self.policies.append(policy)

    def begins_after(self, start: Any) -> None:
        """`start`: the step that the first start of the run went on from."""
        if isinstance(start, int) and self.first > start + 1:
            self._missing(start + 1, self.first - 1)

    def compare(self, event: dict[str, Any], where: str, *, late: bool) -> bool:
        """Whether the event of a step is equal to an entry of it. `late`: it need not have been recorded yet."""
        step, time = event["step"], event["time"]
        row = self._rows.get(step, _Row())
        digest = _digest(event)
        same = [i for i, (figures, _) in enumerate(row.attempts) if figures == digest]
        for i in same:
            row.heard |= 1 << i
        if same:
            return True
        if any(when == time for _, when in row.attempts):
            self._section.find(
                f"the entry of step {step} is not what happened",
                self._path,
                found="other figures than its event's",
                expected=f"those of {where}",
                todo=REFILL,
            )
        elif late:
            self.waiting += 1
        else:
            self._section.find(f"step {step} was not recorded", self._path, expected=f"what {where} says", todo=REFILL)
        return False

    def _missing(self, first: int, last: int) -> None:
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        self._section.find(f"{steps} missing", self._path, expected="an entry for every step", todo=REFILL)

    def _find(self, what: str, entry: Entry, found: str = "", expected: str = "") -> None:
        where = f"{self._path}: step {entry['step']}, attempt {entry['attempt']}"
        self._section.find(what, where, found=found, expected=expected, todo=REFILL)


def _start_of(policy: str) -> int | None:
    try:
        return policy_start(policy)
    except (ValueError, AttributeError):
        return None


def _digest(record: dict[str, Any]) -> bytes:
    """Of the figures that make two records of a step equal."""
    return blake2b(json.dumps([record[name] for name in FIGURES]).encode(), digest_size=8).digest()


def _events(run: RunDir, section: Section) -> Iterator[tuple[dict[str, Any], str, tuple[int, int]]]:
    """Every step event, its file and line, and the place behind it."""
    for path in events.segments(run.events):
        offset = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):  # its writer died, or is at work
                    break
                offset += len(line)
                where = f"{path.relative_to(run.root)}, line {number}"
                try:
                    event = events.parse(line)
                    if event["event"] == "step":
                        entry_of(event, 1, None)
                        yield event, where, (int(path.stem), offset)
                except (ValueError, KeyError, TypeError):
                    section.find(
                        "an event cannot be read",
                        where,
                        found=_shown(line),
                        todo="none: what was recorded of it stands in .loss.json",
                    )
        section.read(path)
