"""The samples of the policy in force: its last 50 audits and those of its checkpoints in `kept/`.

Promises that the content is a function of the events, of `kept/` and of which checkpoints are there. Writes
`.samples.json`.
"""

from __future__ import annotations

from typing import Any

from andrea_rundir import digests, sidecars
from andrea_rundir.events import decode, is_step, lines_back
from andrea_rundir.names import RunDir, checkpoint_name, checkpoint_step
from andrea_rundir.plan import policy_start
from andrea_rundir.shapes import is_whole, misfit

Event = dict[str, Any]

SHOWN = 50
"""Audits that stand in the file; older ones are in `events/` for ever."""


class Samples:
    """Audits by step, of the policy `policy`."""

    def __init__(self, run: RunDir, run_id: str, policy: str) -> None:
        """Reads the events back as far as it must."""
        self._run, self._run_id = run, run_id
        self._saved: dict[str, Any] | None = None
        self.policy = policy
        self.audits = collect(run, policy)

    def pivot(self, policy: str) -> None:
        """Begin with another policy: what is shown from now on are its own audits."""
        self.policy = policy
        self.audits = {step: audit for step, audit in self.audits.items() if step > policy_start(policy)}

    def take(self, audit: Event) -> None:
        """Add one, if it is of this policy. ValueError for what is no audit."""
        if not is_whole(audit):
            raise ValueError("an audit without its fields")
        if _belongs(audit["step"], self.policy):
            self.audits[audit["step"]] = audit

    def save(self) -> None:
        """Write the file if it would say anything new. OSError leaves the old one."""
        now = content(self._run, self._run_id, self.policy, self.audits)
        if now != self._saved:
            sidecars.save(self._run.samples, now)
            self._saved = now


def collect(run: RunDir, policy: str, until: int | None = None) -> dict[int, Event]:
    """The audits of a policy that are to be shown, by step, up to step `until`: from the events, newest first."""
    found: dict[int, Event] = {}
    wanted = {step for step in _kept(run) if _belongs(step, policy)}
    for line in lines_back(run.events):
        # Steps are nearly all of a history and none of them is an audit: decoding them is what a start would wait for.
        if is_step(line) or (event := decode(line)) is None or not isinstance(step := event.get("step"), int):
            continue
        if event["event"] == "checkpoint" and step <= policy_start(policy):
            break
        if (
            event["event"] == "audit"
            and is_whole(event)
            and _belongs(step, policy)
            and (until is None or step <= until)
        ):
            found.setdefault(step, event)
        if len(found) >= SHOWN and wanted <= found.keys():
            break
    return found


def content(run: RunDir, run_id: str, policy: str, audits: dict[int, Event]) -> dict[str, Any]:
    """What the file says. `audits` loses what is no longer shown."""
    kept = _kept(run)
    shown = set(sorted(audits)[-SHOWN:]) | (audits.keys() & kept)
    for step in audits.keys() - shown:
        del audits[step]
    lines = digests.read(run.sums) if any(audits[step]["digest"] is None for step in shown) else {}
    return {
        "run": run_id,
        "policy": policy,
        "audits": [
            {
                "step": step,
                "time": audits[step]["time"],
                "digest": audits[step]["digest"] or lines.get(checkpoint_name(step)),
                "looped": audits[step]["looped"],
                "score": audits[step]["score"],
                "alarm": audits[step]["alarm"],
                "samples": audits[step]["samples"],
                "on_disk": step in kept or run.checkpoint(step).exists(),
                "kept": step in kept,
            }
            for step in sorted(shown)
        ],
    }


def read(run: RunDir) -> list[dict[str, Any]]:
    """The audits in the file, oldest first; none where it cannot be used: it is only a cache."""
    try:
        audits = (sidecars.load(run.samples) or {}).get("audits", [])
    except (OSError, sidecars.Unusable):
        return []
    return audits if isinstance(audits, list) and all(map(_is_shown, audits)) else []


def _is_shown(audit: object) -> bool:
    """Whether it has what `content` gives it."""
    if not isinstance(audit, dict):
        return False
    event = {**audit, "event": "audit"}
    return is_whole(event) and misfit(event) is None and all(type(audit.get(n)) is bool for n in ("on_disk", "kept"))


def _belongs(step: int, policy: str) -> bool:
    """Whether a checkpoint is of that policy; the one it began from is of the policy before, but for the first."""
    start = policy_start(policy)
    return step > start or start == 0


def _kept(run: RunDir) -> set[int]:
    try:
        return {step for path in run.kept.iterdir() if (step := checkpoint_step(path.name)) is not None}
    except FileNotFoundError:
        return set()
