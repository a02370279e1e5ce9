"""A request for a pivot: written, undone, and what became of it, read from files that change names as it goes on.

Writes `policy.next.toml`, and removes it. Imports `andrea_service` and `andrea_rundir` without numpy and pydantic;
what reads plan and policies is imported where it is needed.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from andrea_rundir.faults import Refused
from andrea_rundir.names import RunDir
from andrea_rundir.publish import create, fsync_dir
from andrea_service import identity
from andrea_service.presence import look

if TYPE_CHECKING:
    from andrea_cli.proposal import Inforce, Proposal
    from andrea_rundir.config import RunConfig

State = Literal["asked", "claimed", "planned", "in force", "refused", "undone"]


@dataclass(frozen=True)
class Fate:
    """How far it is. `step`: after which step it takes effect, as far as that is known; `policy`: its id, then."""

    state: State
    step: int
    policy: str = ""
    reason: str = ""


def save_first(run: RunDir, *, only: str | None = None) -> None:
    """Ask the trainer for a checkpoint before its policy ends; one that has ended meanwhile needs none. Refused when
    it may not be signalled, or is not the process `only`."""
    try:
        identity.send(run, signal.SIGUSR1, only=only)
    except Refused:
        if look(run).alive:
            raise


class Request:
    """A pivot that this process asks for."""

    def __init__(self, run: RunDir, settings: RunConfig, proposal: Proposal) -> None:
        """Nothing is written yet."""
        self._run, self._settings, self._proposal = run, settings, proposal
        self._old = set(_set_aside(run))
        self._seen: tuple[int, Fate] | None = None

    def write(self) -> None:
        """Leave it for the proxy, durably. Refused when somebody else was faster; OSError: nothing was written."""
        run = self._run
        try:
            create(run.policy_next, self._proposal.text.encode())
        except FileExistsError:
            raise _asked_already(run) from None
        if run.policy_pending.exists() and undo(run):  # what is pending is not ours then
            raise Refused("another pivot was claimed at this moment", where=str(run.policy_pending))

    def look(self) -> Fate:
        """In the order in which the file moves on, so that none is missed."""
        run, text = self._run, self._proposal.text
        if run.policy_next.exists():
            return Fate("asked", self._planned().step)
        if pending(run) == text:
            return self._planned()
        for path in sorted(set(_set_aside(run)) - self._old):
            content = path.read_text(encoding="utf-8", errors="replace")
            if content.endswith(text):
                reason = [line.removeprefix("# ") for line in content.removesuffix(text).splitlines()]
                return Fate("refused", 0, reason="; ".join(reason) or f"it is kept as {path.name}; see the journal")
        found = self._planned()
        return Fate("in force" if found.policy else "undone", found.step, found.policy)

    def _planned(self) -> Fate:
        """Whether the plan goes over to it yet, and where; looked up when the plan has grown."""
        from andrea_cli.proposal import in_force

        size = self._run.plan.stat().st_size if self._run.plan.exists() else 0
        if self._seen is None or self._seen[0] != size:
            now, before = in_force(self._run, self._settings)[0], self._proposal.before
            mine = now.regime.text == self._proposal.text and now.regime.id != before.id
            fate = Fate("planned", now.regime.start, now.regime.id) if mine else Fate("claimed", now.next_boundary)
            self._seen = (size, fate)
        return self._seen[1]


def pending(run: RunDir) -> str | None:
    """The text of a request that the proxy has claimed; None when there is none."""
    try:
        return run.policy_pending.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def undo(run: RunDir) -> bool:
    """Take a request back; False when there is none that was not claimed yet."""
    try:
        run.policy_next.unlink()
    except FileNotFoundError:
        return False
    fsync_dir(run.root)
    return True


def must_be_free(run: RunDir, now: Inforce) -> None:
    """Refused when another pivot is asked for or under way, naming it."""
    if run.policy_next.exists():
        raise _asked_already(run)
    if (text := pending(run)) is not None:
        raise under_way(run, now, text, "another pivot is under way", "ask again when it is finished")
    if run.policy_toml.exists() and run.policy_toml.read_text(encoding="utf-8", errors="replace") != now.regime.text:
        raise Refused(
            "policy.toml was edited by hand: that is a pivot, and it begins when andrea-proxy starts the next time",
            where=str(run.policy_toml),
            expected=f"policy {now.regime.id}, which is in force",
            todo="restart andrea-proxy to have it; or remove policy.toml first, to drop it: it is written anew",
        )


def under_way(run: RunDir, now: Inforce, text: str, what: str, todo: str) -> Refused:
    """A claimed request can only be waited for: says for which step."""
    if now.regime.text == text:
        found = f"policy {now.regime.id}, from step {now.regime.start + 1:,} on"
    else:
        found = f"it is claimed and takes effect after step {now.next_boundary:,}"
    return Refused(what, where=str(run.policy_pending), found=found, todo=todo)


def _asked_already(run: RunDir) -> Refused:
    return Refused(
        "another pivot is asked for",
        where=str(run.policy_next),
        found="a request that andrea-proxy has not claimed yet",
        todo=f"undo it first: andrea pivot {run.root} --abort",
    )


def _set_aside(run: RunDir) -> list[Path]:
    return list(run.root.glob(f"{run.policy_next.name}.bad*"))
