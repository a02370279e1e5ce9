"""The checkpoints of a run: every file whole, as it was saved, and saved by this run.

Reads every file once, however many names it has, in bounded memory. Writes nothing. Imports `andrea_rundir`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from andrea_cli import lineage, output
from andrea_cli.soundness import Section
from andrea_cli.stock import files
from andrea_rundir import checkpoint, digests, history, inspection
from andrea_rundir.names import RunDir

Key = tuple[int, int, int]
"""Device, inode and time of change of a file: the same key, the same bytes."""

DAMAGED = "bring it back from a copy; a start passes it over, sets it aside and goes on from the one before"


@dataclass
class Known:
    """What the run itself says of its checkpoints, by step."""

    digests: dict[int, set[str]] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    """Steps at which a save was begun."""

    def of(self, step: int) -> set[str]:
        """The digests that files of that step may have."""
        return self.digests.get(step, set())


class Checkpoints:
    """Checks them, and remembers what was in a file as long as nobody changes it."""

    def __init__(self, run: RunDir, n_params: int, say: Callable[[str], None]) -> None:
        self._run, self._n_params, self._say = run, n_params, say
        self._seen: dict[Key, inspection.Facts | checkpoint.Invalid] = {}

    def check(self) -> Section:
        """Everything in the run directory, in `kept/` and in `archive/`."""
        section, read = Section("checkpoints"), {}
        there = list(files(self._run))
        known = _known(self._run)
        for step, path in there:
            try:
                stat = path.stat()
                key = (stat.st_dev, stat.st_ino, stat.st_mtime_ns)
                if key not in self._seen:
                    self._say(f"reads {path}, {output.size(stat.st_size)}")
                    self._seen[key] = _inspect(path)
                self._judge(section, step, path, self._seen[key], known)
            except FileNotFoundError:  # pruned since it was listed
                continue
            read[key] = stat.st_size
        section.files, section.bytes = len(read), sum(read.values())
        section.say("headers, sizes, digests, values")
        for path in sorted(self._run.root.glob("step_*.bin.bad*")):
            section.notes.append(f"{path.name} was set aside by a start that could not use it")
        return section

    def _judge(
        self, section: Section, step: int, path: Path, facts: inspection.Facts | checkpoint.Invalid, known: Known
    ) -> None:
        """One file. FileNotFoundError when it is gone by now: then nothing is wrong with it."""
        if isinstance(facts, checkpoint.Invalid) or facts.problem is not None:
            why = str(facts) if isinstance(facts, checkpoint.Invalid) else str(facts.problem)
            path.stat()
            section.find("not a usable checkpoint", path, found=why, todo=DAMAGED)
            return
        if facts.n_params != self._n_params:
            section.find(
                "a checkpoint of another model",
                path,
                found=f"{facts.n_params:,} parameters",
                expected=f"{self._n_params:,} (run.toml)",
                todo="move it away",
            )
        own = facts.digest in known.of(step)
        line = None
        if path.parent != self._run.archived(step):  # retention drops the lines of what lies there
            line = digests.read(self._run.sums).get(path.name)
            path.stat()
            if line is None:
                self._no_line(section, path, facts.digest, own)
            elif line != facts.digest:
                section.find(
                    "not what was saved: the bytes have changed",
                    path,
                    found=f"SHA-256 {facts.digest}",
                    expected=f"{line} ({self._run.sums.name})",
                    todo=DAMAGED,
                )
                return
        if own:
            return
        if line is not None and step in known.begun and not known.of(step):
            section.notes.append(f"{path.name} is whole, but no event tells of it: a kill came between the two")
            return
        section.find(
            "a checkpoint of another run"
            if line is not None
            else "not what this run saved: changed, or of another run",
            path,
            found=f"SHA-256 {facts.digest}",
            expected=" or ".join(sorted(known.of(step))) or f"an event of this run about step {step}",
            todo="move it away; `andrea init NEW --from FILE.bin` makes a run of it",
        )

    def _no_line(self, section: Section, path: Path, digest: str, own: bool) -> None:
        line = f"{digest}  {path.name}"
        section.find(
            "no digest line",
            self._run.sums,
            found=f"none for {path.relative_to(self._run.root)}",
            expected=line,
            todo="it is what the events say: stop the trainer and add that line" if own else "",
        )


def _inspect(path: Path) -> inspection.Facts | checkpoint.Invalid:
    """What is in a file, or why it cannot be read."""
    try:
        return inspection.inspect(path)
    except checkpoint.Invalid as why:
        path.stat()
        return why


def _known(run: RunDir) -> Known:
    """From the events, and from the lineage of a run that began with a file."""
    known = Known()
    for event in history.of_kinds(run, "checkpoint", "audit", "snapshot"):
        step, digest = event.get("step"), event.get("digest")
        if not isinstance(step, int):
            continue
        if event["event"] == "snapshot":
            known.begun.add(step)
        elif isinstance(digest, str):
            known.digests.setdefault(step, set()).add(digest)
    if (origin := lineage.read(run)) is not None and {"step", "digest"} <= origin.keys():
        known.digests.setdefault(origin["step"], set()).add(origin["digest"])
    return known
