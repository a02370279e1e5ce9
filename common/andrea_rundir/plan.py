"""One round of the curriculum: what the proxy promises and what the trainer falls back on.

Pure. Writes no file. Standard library and shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from andrea_rundir.shapes import is_count, is_int

SHARE_UNIT = 1 << 32
"""Shares are integers that sum to this."""
MAX_ROUND = 20
"""Steps of the longest round."""


def round_of(step: int, size: int) -> int:
    """The round, counted from 0, in which a step, counted from 1, is trained."""
    return (step - 1) // size


def round_steps(number: int, size: int) -> tuple[int, int]:
    """First and last step of a round, both included."""
    return number * size + 1, (number + 1) * size


def policy_start(policy: str) -> int:
    """The step after which the policy of that id is in force; ValueError for what is no id."""
    return int(policy.partition("-")[0])


@dataclass(frozen=True)
class RoundPlan:
    """Steps `first` to `last` of round `round`: shares, and where dealer and cursors stand before `first`."""

    round: int
    first: int
    last: int
    policy: str
    """Policy id."""
    arms: dict[str, str]
    """Fingerprint of each arm's shard."""
    shares: dict[str, int]
    """Share of pulls of each active arm; sums to SHARE_UNIT."""
    cursors: dict[str, int]
    credits: dict[str, int]
    limits: dict[str, int | None]
    """The cursor at which an arm is used up (max_epochs); None = never."""
    caps: dict[str, int]
    """Largest share of each active arm, in the same units."""
    steps: list[dict[str, int]] | None
    """Sequences of each arm, a step; None where they are dealt from shares as the round goes."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object, keys in the order of the fields."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RoundPlan:
        """Read what `to_json` wrote, among other keys or not; ValueError saying what does not fit."""
        for name in cls.__dataclass_fields__:
            if name not in found:
                raise ValueError(f"a round plan without {name}")
        plan = cls(**{name: found[name] for name in cls.__dataclass_fields__})
        for name in ("round", "first", "last"):
            _need(is_count(getattr(plan, name)), name)
        _need(plan.first <= plan.last < plan.first + MAX_ROUND, "first and last")
        _need(isinstance(plan.policy, str) and _is_id(plan.policy), "policy")
        _need(isinstance(plan.arms, dict) and all(isinstance(f, str) for f in plan.arms.values()), "arms")
        for name in ("shares", "cursors", "caps"):
            table = getattr(plan, name)
            _need(isinstance(table, dict) and all(is_count(n) for n in table.values()), name)
        _need(isinstance(plan.credits, dict) and all(is_int(n) for n in plan.credits.values()), "credits")
        _need(
            isinstance(plan.limits, dict) and all(n is None or is_count(n) for n in plan.limits.values()),
            "limits",
        )
        _need(sum(plan.shares.values()) == SHARE_UNIT and plan.shares.keys() <= plan.arms.keys(), "shares")
        _need(plan.shares.keys() <= plan.caps.keys() & plan.limits.keys(), "caps and limits")
        _need(plan.arms.keys() <= plan.cursors.keys(), "cursors")
        _need(plan.steps is None or _are_steps(plan.steps, plan), "steps")
        return plan


def _is_id(policy: str) -> bool:
    try:
        return policy_start(policy) >= 0
    except ValueError:
        return False


def _are_steps(steps: object, plan: RoundPlan) -> bool:
    return (
        isinstance(steps, list)
        and len(steps) == plan.last - plan.first + 1
        and all(isinstance(counts, dict) and all(is_count(n) for n in counts.values()) for counts in steps)
    )


def _need(holds: bool, name: str) -> None:
    if not holds:
        raise ValueError(f"a round plan whose {name} cannot be used")
