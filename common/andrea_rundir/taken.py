"""What the trainer took up: every round that it began, and the policies these belong to, as its events say.

Promises that a plan that is lost can be made anew, but for the lines that were not taken up yet: each round is on
record before its first step, and a policy, durably, with the first round that it was in force. Reads `events/`; writes
no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from andrea_rundir.events import Event, of_kinds
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.planfile import Line


def lines(run: RunDir) -> list[Line]:
    """A plan's lines for all rounds on record: the last that was taken up of each, in the order in which they were.

    What cannot be used is left out, as it is in a plan.
    """
    newest: dict[int, Line] = {}
    texts: dict[str, str] = {}
    for event in of_kinds(run.events, "start", "round", "fallback"):
        for name, text, _ in _recipes(event):
            texts.setdefault(name, text)
        if event["event"] != "start" and (line := _line(event)) is not None:
            newest.pop(line.plan.round, None)
            newest[line.plan.round] = line
    # a policy's text stands on the first line of it
    return [replace(line, policy_text=texts.pop(line.plan.policy, None)) for line in newest.values()]


def policy(run: RunDir, name: str, which: str) -> tuple[str, dict[str, str]]:
    """Text and fingerprints of the policy of that id; BadConfig where it was never taken up.

    `which` says in the error what the policy is needed for.
    """
    for event in of_kinds(run.events, "start", "round"):
        for begun, text, arms in _recipes(event):
            if begun == name:
                return text, arms
    raise BadConfig(
        f"the policy {name}, {which}, is nowhere to be found",
        where=str(run.plan),
        expected="the first line of that policy, or an event of its first round",
        todo="bring plan.jsonl back from a copy",
    )


def _line(event: Event) -> Line | None:
    try:
        line = Line.from_json(event)
    except ValueError:
        return None
    return replace(line, fallback=True) if event["event"] == "fallback" else line


def _recipes(event: Event) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Id, text and fingerprints of the policy that an event tells of, if it does."""
    if event["event"] == "start":
        if begun := event.get("policy"):
            yield begun["id"], begun["text"], begun["arms"]
    elif text := event.get("policy_text"):
        yield event["policy"], text, event["arms"]
