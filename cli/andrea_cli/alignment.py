"""What two runs have done since they parted, side by side: aligned by steps since then.

Held-out figures are compared over the shards that both were probed on, whatever their arms are called, weighted by the
priors of the policy in force where they parted: so two policies are judged by one yardstick. Reads only. Imports
`andrea_rundir` and, for what policies say, `andrea_proxy`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from andrea_proxy.policies import Policies
from andrea_rundir import history
from andrea_rundir.config import RunConfig
from andrea_rundir.entries import Entry
from andrea_rundir.names import RunDir

Bits = dict[str, float]
"""Held-out bits a byte by fingerprint."""


@dataclass(frozen=True)
class Branch:
    """One run after its step `fork`. `entries` and `probes` are by step of the run."""

    run: RunDir
    fork: int
    entries: dict[int, Entry]
    probes: dict[int, Bits]
    priors: dict[str, float]
    """Of the policy in force at the fork, by fingerprint."""
    arms: dict[str, str]
    """Name of every fingerprint that it was fed by since the fork."""

    @property
    def last(self) -> int:
        """Steps since the fork."""
        return max(self.entries, default=self.fork) - self.fork

    @property
    def policies(self) -> list[str]:
        """Ids of the policies it was trained under since the fork, in order."""
        return list(dict.fromkeys(entry["policy"] for entry in self.entries.values()))

    def ema(self, since: int) -> float | None:
        """Smoothed loss, nats a token."""
        entry = self.entries.get(self.fork + since)
        return None if entry is None else entry["ema"]

    def shares(self, upto: int) -> dict[str, float]:
        """Share of the pulls of each arm, by name, over the steps up to `upto` since the fork."""
        pulls: dict[str, int] = {}
        for step, entry in self.entries.items():
            for arm, (count, *_) in entry["arms"].items():
                if step <= self.fork + upto:
                    pulls[arm] = pulls.get(arm, 0) + count
        total = sum(pulls.values())
        return {arm: count / total for arm, count in sorted(pulls.items())}


def branch(run: RunDir, settings: RunConfig, fork: int) -> Branch:
    """What is on record of a run since step `fork`."""
    known = _policies(run, settings)
    entries = {entry["step"]: entry for entry in history.entries(run)}
    later = {step: entry for step, entry in entries.items() if step > fork}
    here = entries.get(fork) or next(iter(later.values()), None)
    priors: dict[str, float] = {}
    if here is not None:
        regime = known.of(here["policy"])
        priors = {regime.arms[arm]: rules.prior for arm, rules in regime.rules.arms.items()}
    arms: dict[str, str] = {}
    for name in dict.fromkeys(entry["policy"] for entry in later.values()):
        arms |= {fingerprint: arm for arm, fingerprint in known.of(name).arms.items()}
    probes = {}
    for event in history.of_kind(run, "probe"):
        if (step := event["step"]) in later:
            by_name = known.of(later[step]["policy"]).arms
            probes[step] = {
                by_name[arm]: bits for arm, bits in event["arms"].items() if bits is not None and arm in by_name
            }
    return Branch(run, fork, later, probes, priors, arms)


def _policies(run: RunDir, settings: RunConfig) -> Policies:
    known = Policies(run, context=settings.shape.context, round_steps=settings.round_steps)
    for event in history.of_kinds(run, "start"):
        if begun := event.get("policy"):
            known.learn(begun["id"], begun["text"], begun["arms"])
    return known


@dataclass(frozen=True)
class Point:
    """Both branches, so many steps since the fork; held-out figures where both were probed on the same shards."""

    since: int
    ema: tuple[float | None, float | None]
    held_out: tuple[float | None, float | None]

    @property
    def difference(self) -> float | None:
        """Of the second to the first, bits a byte; below zero the second is better."""
        one, other = self.held_out
        return None if one is None or other is None else other - one


def aligned(one: Branch, other: Branch) -> list[Point]:
    """Every probe that both have, and the last step that both have."""
    end = min(one.last, other.last)
    probed = {step - one.fork for step in one.probes} & {step - other.fork for step in other.probes}
    return [_point(one, other, since) for since in sorted(probed | ({end} - {0}))]


def _point(one: Branch, other: Branch, since: int) -> Point:
    figures: tuple[float | None, float | None] = (None, None)
    mine, theirs = (b.probes.get(b.fork + since, {}) for b in (one, other))
    if shared := mine.keys() & theirs.keys() & one.priors.keys():
        weights = {fingerprint: one.priors[fingerprint] for fingerprint in shared}
        figures = (_mean(mine, weights), _mean(theirs, weights))
    return Point(since, (one.ema(since), other.ema(since)), figures)


def _mean(bits: Bits, weights: Mapping[str, float]) -> float:
    total = math.fsum(weights.values())
    return math.fsum(weights[name] * bits[name] for name in sorted(weights)) / total


def arms(one: Branch, other: Branch) -> list[dict[str, Any]]:
    """A row a shard that either was fed by: name, share of the pulls up to the last common step, last held-out figure.

    Each a pair, with None for a branch that does not have it, or while there is no common step.
    """
    both, end = (one, other), min(one.last, other.last)
    shares = [b.shares(end) for b in both]
    probed = sorted({s - one.fork for s in one.probes} & {s - other.fork for s in other.probes})
    rows = []
    for fingerprint in sorted({**one.arms, **other.arms}, key=lambda f: one.arms.get(f) or other.arms[f]):
        names = [b.arms.get(fingerprint) for b in both]
        rows.append(
            {
                "arm": names,
                "fingerprint": fingerprint,
                "share": [s.get(n, 0.0) if n is not None and end else None for n, s in zip(names, shares, strict=True)],
                "held_out": [b.probes[b.fork + probed[-1]].get(fingerprint) if probed else None for b in both],
            }
        )
    return rows
