"""The account of a start: what it found and what it runs with, told to the history and the journal.

Promises that whatever may change the bits of a run stands in its events, and that a checkpoint that was passed over is
named and set aside, never deleted. Writes, through `Outside`, `events/`; renames bad checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch

from andrea_rundir.config import RunConfig, differences
from andrea_rundir.loading import Choice, set_aside
from andrea_train import device as devices
from andrea_train.larder import Diet
from andrea_train.outside import Outside
from andrea_train.resume import Place, Record


def begun(settings: RunConfig, outside: Outside, device: torch.device, step: int, past: Record, diet: Diet) -> None:
    """Record this start after `step`, and warn of everything that differs from the start before it."""
    facts: dict[str, Any] = {
        **devices.facts(device),
        "andrea": version("andrea-train"),
        "config": settings.model_dump(mode="json"),
    }
    outside.events.append(
        "start",
        step=step,
        attempt=past.attempts + 1,
        furthest=past.furthest,
        pid=os.getpid(),
        **facts,
        policy=diet.recipe.to_json(),
    )
    if past.start is None:
        return
    for name, (old, new) in _changes(past.start, facts).items():
        outside.warn(step, "changed since the last start", f"the bits may differ: {name} was {old}, is {new}")


def _changes(before: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What a start has otherwise than the one before it: both values, by name; keys of the configuration by theirs."""
    changes = {name: (before.get(name), value) for name, value in facts.items() if before.get(name) != value}
    old, new = changes.pop("config", ({}, {}))
    names = {"run.id", "run.name"}  # a fork has its own; neither is an input of anything
    return changes | {key: both for key, both in differences(old or {}, new).items() if key not in names}


def chosen(outside: Outside, choice: Choice, here: Place) -> None:
    """Name every newer file that was passed over, set it aside, and say where the run goes on."""
    step = choice.step
    for passed in choice.passed:
        aside = set_aside(passed.path)
        detail = f"{passed.path.name}: {passed.reason}; set aside as {aside.name}"
        outside.warn(step, "checkpoint passed over", detail, event="passed-over")
    if not choice.has_digest_line:
        detail = f"{choice.path.name} has no line in SHA256SUMS; it is used, unverified by digest"
        outside.warn(step, "no digest line", detail)
    if here.source != "events":
        what = f"cursors come from {here.source}" if here.source else "data order starts afresh, an even split"
        detail = f"no events speak of step {step}: {what}; the guard starts afresh"
        outside.warn(step, "no history", detail)
    outside.log.info("goes on from %s", choice.path.name, extra={"event": "resume", "step": step})
