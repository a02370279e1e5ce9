"""The recall of a policy, by its id, that no line of the plan tells of any more.

A plan that is removed takes with it the lines that said what its policies are. A start event says it too; else the run
directory still has the text, which the id is a digest of, and a round on record names the shards. Reads `events/`,
`policy.toml`, `policy.pending.toml` and `archive/`; writes no file.
"""

from __future__ import annotations

from collections.abc import Iterator

from andrea_rundir import tomlfile
from andrea_rundir.events import Event, read_back
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan, policy_start
from andrea_rundir.policy import policy_id


def recall(run: RunDir, name: str, which: str) -> tuple[str, dict[str, str]]:
    """Text and fingerprints of the policy of that id; BadConfig where one of them is nowhere.

    `which` says in the error what the policy is needed for.
    """
    text, start = None, policy_start(name)
    for found in _texts(run):
        if policy_id(found, start) == name:
            text = found
    for event in read_back(run.events):
        if event["event"] == "start" and (begun := event.get("policy")) and begun["id"] == name:
            return begun["text"], begun["arms"]
        if text is not None and (plan := _round(event)) is not None and plan.policy == name:
            return text, plan.arms
    raise BadConfig(
        f"the policy {name}, {which}, is nowhere to be found",
        where=str(run.plan),
        expected="the first line of that policy",
        todo="bring plan.jsonl back from a copy",
    )


def _texts(run: RunDir) -> Iterator[str]:
    for path in (run.policy_toml, run.policy_pending, *sorted(run.archive.glob("*/policy.toml"))):
        try:
            yield tomlfile.read(path)
        except BadConfig:
            continue


def _round(event: Event) -> RoundPlan | None:
    """The round that a snapshot or a fallback records."""
    try:
        match event["event"]:
            case "snapshot":
                return RoundPlan.from_json(event["round"])
            case "fallback":
                return RoundPlan.from_json(event)
    except (KeyError, TypeError, ValueError):  # damaged, or of a run that has no rounds
        pass
    return None
