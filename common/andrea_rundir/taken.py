"""What the trainer took up: every round that it began, and the policies these belong to, as its events say.

Promises that a plan that is lost can be made anew, but for the lines that were not taken up yet: each round is on
record before its first step, and a policy, durably, with the first round that it was in force. Reads `events/`; writes
no file.
"""

from __future__ import annotations

from dataclasses import replace

from andrea_rundir.events import Event, of_kind_back, of_kinds
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.planfile import Line


def newest(run: RunDir) -> int | None:
    """The number of the round that was begun last with a line of the plan; None where none is on record."""
    found = (line for event in of_kind_back(run.events, "round") if (line := _line(event)) is not None)
    return next((line.plan.round for line in found), None)


def lines(run: RunDir) -> list[Line]:
    """A plan's lines, by round: what the trainer took up last, and nothing of what that left behind.

    Where a round was begun again, otherwise than before, what had been trained after it counts no more. What cannot be
    used is left out, as it is in a plan.
    """
    found: dict[int, Line] = {}
    texts: dict[str, str] = {}
    for event in of_kinds(run.events, "start", "round", "fallback"):
        if (recipe := _recipe(event)) is not None:
            texts.setdefault(recipe[0], recipe[1])
        if (line := _line(event)) is None:
            continue
        before = found.get(line.plan.round)
        if before is None or before.plan != line.plan:
            while found and next(reversed(found)) >= line.plan.round:  # the last one is the highest
                found.popitem()
        found[line.plan.round] = line
    # a policy's text stands on the first line of it
    return [replace(line, policy_text=texts.pop(line.plan.policy, None)) for line in found.values()]


def policy(run: RunDir, name: str, which: str) -> tuple[str, dict[str, str]]:
    """Text and fingerprints of the policy of that id; BadConfig where it was never taken up.

    `which` says in the error what the policy is needed for.
    """
    for event in of_kinds(run.events, "start", "round"):
        if (recipe := _recipe(event)) is not None and recipe[0] == name:
            return recipe[1:]
    raise BadConfig(
        f"the policy {name}, {which}, is nowhere to be found",
        where=str(run.plan),
        expected="the first line of that policy, or an event of its first round",
        todo="bring plan.jsonl back from a copy",
    )


def _line(event: Event) -> Line | None:
    if event["event"] not in ("round", "fallback"):
        return None
    try:
        line = Line.from_json(event)
    except ValueError:
        return None
    return replace(line, fallback=True) if event["event"] == "fallback" else line


def _recipe(event: Event) -> tuple[str, str, dict[str, str]] | None:
    """Id, text and fingerprints of the policy that an event tells of, if it does."""
    if event["event"] == "start":
        begun = event.get("policy")
        return (begun["id"], begun["text"], begun["arms"]) if begun else None
    line = _line(event)
    return (line.plan.policy, line.policy_text, line.plan.arms) if line is not None and line.policy_text else None
