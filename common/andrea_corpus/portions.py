"""What a policy will feed a model if its learner has no preference: each arm's part of a whole run.

Pure. Imports `projection` and `andrea_rundir.policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum

from andrea_corpus.projection import project
from andrea_rundir.policy import Policy


def portions(policy: Policy, steps: int) -> dict[str, float]:
    """Each arm's share of the pulls of steps 1 to `steps`, by name: its prior inside the limits of every phase."""
    parts: dict[str, list[float]] = {arm: [] for arm in sorted(policy.arms)}
    start = 0
    for end in [*(phase.until_step or steps for phase in policy.phases), steps]:
        length = min(end, steps) - start
        if length > 0:
            limits = policy.limits(start + 1)
            shares = project(limits.priors, limits.floors, limits.caps).shares
            for arm, share in shares.items():
                parts[arm].append(share * length / steps)
            start += length
    return {arm: fsum(part) for arm, part in parts.items()}


def allot(shares: Mapping[str, float], total: float, most: Mapping[str, float]) -> dict[str, float]:
    """`total` split by `shares`, no arm above its `most`; the others take over in their ratio what it cannot take.

    Sums to `total` unless all arms are at their most.
    """
    given: dict[str, float] = {arm: 0.0 for arm, share in shares.items() if share <= 0}
    while rest := {arm: share for arm, share in shares.items() if arm not in given}:
        left = max(0.0, total - fsum(given.values()))
        scale = left / fsum(rest.values())
        full = {arm: most[arm] for arm, share in rest.items() if share * scale >= most[arm]}
        given |= full or {arm: share * scale for arm, share in rest.items()}
    return {arm: given[arm] for arm in shares}
