"""What a check of a run's files came to: what was read, what is wrong with it, and what is merely worth knowing.

Promises that files which change while they are read raise no false alarm: beside a process at work a finding counts
only if it is still there a moment later. Standard library, our output and `andrea_rundir.faults`; writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from andrea_cli import output
from andrea_rundir.faults import Fault, Refused

MOST = 50
"""Findings that are told one by one; of a file that is altogether wrong the rest are only counted."""
PAUSE_SECONDS = 1.0
"""Longer than it takes to rename a file after its digest line, or to write the event that tells of it."""


@dataclass
class Section:
    """One kind of files."""

    name: str
    says: str = ""
    """What was checked, for people."""
    files: int = 0
    bytes: int = 0
    findings: list[Fault] = field(default_factory=list)
    more: int = 0
    """Findings beyond MOST."""
    notes: list[str] = field(default_factory=list)

    def read(self, path: Path) -> None:
        """Count a file that was looked at."""
        with suppress(FileNotFoundError):
            self.bytes += path.stat().st_size
            self.files += 1

    def find(self, what: str, where: object, found: str = "", expected: str = "", todo: str = "") -> None:
        """Take down something that is wrong."""
        if len(self.findings) < MOST:
            self.findings.append(Refused(what, where=str(where), found=found, expected=expected, todo=todo))
        else:
            self.more += 1

    def say(self, what: str) -> None:
        """What was checked, for people; how much is said of itself."""
        self.says = f"{self.files:,} files, {output.size(self.bytes)}: {what}"

    def to_json(self) -> dict[str, Any]:
        """As --json has it."""
        return {"files": self.files, "bytes": self.bytes, "checked": self.says, "notes": self.notes}


def lasting(check: Callable[[], Section], busy: Callable[[], bool]) -> Section:
    """The section, with those findings only that are found twice where somebody is at work on the run."""
    section = check()
    if section.findings and busy():
        time.sleep(PAUSE_SECONDS)
        before, section = section, check()
        known = {str(finding) for finding in before.findings}
        section.findings = [finding for finding in section.findings if str(finding) in known]
        section.more = min(section.more, before.more)
    return section
