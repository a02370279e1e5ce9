"""From a few measured steps to what a whole run will take: time, disk, writes, reach of its checkpoints, epochs.

Pure arithmetic over a configuration and the trainer's trial. Imports `andrea_rundir` and `andrea_corpus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from andrea_corpus.portions import allot, portions
from andrea_rundir.checkpoint import file_size
from andrea_rundir.config import RunConfig
from andrea_rundir.policy import Policy
from andrea_rundir.retention import doomed

DAY = 86400.0
TENTHS = (10, 200)
"""Every tenth cadence stays this many cadences back (retention)."""


@dataclass(frozen=True)
class Times:
    """Seconds from now to the last durable checkpoint, and how they are made up."""

    start: float
    steps: float
    checkpoints: float
    """Audits, and the stall of a snapshot."""
    probes: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.start + self.steps + self.checkpoints + self.probes


def times(settings: RunConfig, measured: Mapping[str, Any], done: int) -> Times:
    """The time that the steps after `done` will take."""
    last, every = settings.optimizer.max_steps, settings.checkpoint.every
    left = max(0, last - done)
    edges = last // every - done // every
    rounds = -(-left // settings.round_steps)
    probes = last // settings.probe.every - done // settings.probe.every
    final = 1 if last % every else 0
    return Times(
        start=measured["start_seconds"],
        steps=left * measured["step_seconds"] + max(0, rounds - edges) * measured["round_seconds"],
        checkpoints=(edges + final) * measured["edge_seconds"] + measured["save_seconds"],
        probes=probes * measured["probe_seconds"],
    )


def kept(settings: RunConfig) -> int:
    """How many checkpoints retention keeps at the end of the run, the best one counted apart."""
    last, c = settings.optimizer.max_steps, settings.checkpoint
    steps = {*range(0, last + 1, c.every), last}
    gone = doomed(
        steps,
        every=c.every,
        keep_last=c.keep_last,
        keep_every=c.keep_every_steps,
        best=None,
        protected=(),
        regressed=False,
    )
    return min(len(steps), len(steps) - len(gone) + 1)


def disk(settings: RunConfig, measured: Mapping[str, Any], run_seconds: float) -> dict[str, float]:
    """Bytes: a checkpoint, all that are kept at the end, the most at any time, the history, and writes a day."""
    last, c = settings.optimizer.max_steps, settings.checkpoint
    one, sizes = file_size(settings.shape.n_params), measured["event_bytes"]
    edges = last // c.every + 1
    history = (
        last * sizes.get("step", 0.0)
        + last // settings.round_steps * sizes.get("round", 0.0)
        + edges * sum(sizes.get(kind, 0.0) for kind in ("snapshot", "checkpoint", "audit"))
        + last // settings.probe.every * sizes.get("probe", 0.0)
    )
    count = kept(settings)
    return {
        "checkpoint": one,
        "kept_count": count,
        "kept": count * one,
        "peak": (count + 1) * one,
        "history": history,
        "a_day": (edges * one + history) / run_seconds * DAY,
    }


def reach(settings: RunConfig) -> dict[str, int]:
    """How far back checkpoints lie, in steps: all, every tenth, and the spacing of those that stay for ever."""
    last, c = settings.optimizer.max_steps, settings.checkpoint
    return {
        "all": min(last, (c.keep_last - 1) * c.every),
        "tenths_apart": TENTHS[0] * c.every,
        "tenths": min(last, TENTHS[1] * c.every),
        "for_ever_apart": c.keep_every_steps,
    }


def epochs(settings: RunConfig, policy: Policy, train_tokens: Mapping[str, int]) -> dict[str, float]:
    """How often each arm's text goes by in the whole run, if the learner has no preference."""
    optimizer, context = settings.optimizer, settings.shape.context
    windows = {arm: -((1 - tokens) // context) for arm, tokens in train_tokens.items()}
    most = {arm: (policy.arms[arm].max_epochs or inf) * windows[arm] for arm in windows}
    pulls = allot(portions(policy, optimizer.max_steps), optimizer.max_steps * optimizer.batch_size, most)
    return {arm: pulls[arm] / windows[arm] for arm in sorted(windows)}
