"""From a learner's weights to shares of pulls inside caps and floors: the exact KL projection.

Pure; plain floats summed by `math.fsum` over sorted names, so the result does not depend on the order of a
mapping. Writes nothing; imports the unit of shares from `andrea_rundir.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, fsum, isfinite

from andrea_rundir.plan import SHARE_UNIT

TOLERANCE = 1e-9
"""By how much sums of caps and floors may miss 1: 49 caps of 1/49 sum to a little less."""


@dataclass(frozen=True)
class Projection:
    """Shares by arm, summing to 1; `scaled` when the caps summed under 1 and were scaled up together."""

    shares: dict[str, float]
    scaled: bool


def project(weights: Mapping[str, float], floors: Mapping[str, float], caps: Mapping[str, float]) -> Projection:
    """The point of {floor <= p <= cap, sum p = 1} that is nearest to the weights in KL(p || weights).

    It is p = clip(weight * s, floor, cap) for the one s that makes the sum 1: arms between their limits keep
    the ratios of their weights. Caps that sum under 1 (arms have dropped out) are scaled up together first, so a
    floor never yields to a cap. An arm of weight 0 gets its floor, unless the others cannot take the rest inside
    their caps: then the arms of weight 0 share it as if their weights were equal.
    Raises ValueError: no arms, a weight that is negative or not finite, floors above 1 or above their caps.
    """
    names = sorted(weights)
    _check(names, weights, floors, caps)
    total = fsum(caps[n] for n in names)
    scaled = total < 1 - TOLERANCE
    high = {n: max(floors[n], caps[n] / total if total < 1 else caps[n]) for n in names}
    heaviest = max(weights[n] for n in names)
    scale = {n: weights[n] / heaviest if heaviest else 1.0 for n in names}
    wanted = [n for n in names if scale[n] > 0]
    rest = [n for n in names if not scale[n] > 0]
    floor_of_rest = fsum(floors[n] for n in rest)
    room = fsum(high[n] for n in wanted)
    if not rest or room + floor_of_rest >= 1:
        shares = {n: floors[n] for n in rest} | _fill(1 - floor_of_rest, wanted, scale, floors, high)
    else:
        shares = {n: high[n] for n in wanted} | _fill(1 - room, rest, dict.fromkeys(rest, 1.0), floors, high)
    return Projection({n: shares[n] for n in names}, scaled)


def _fill(
    mass: float,
    names: list[str],
    weights: Mapping[str, float],
    low: Mapping[str, float],
    high: Mapping[str, float],
) -> dict[str, float]:
    """clip(weight * s, low, high) that sums to `mass`, for weights > 0; at most one turn an arm.

    Scale the free arms to the mass that is left; pin those of the side (below low, or above high) that is
    violated by more in total; repeat.
    """
    free, pinned = list(names), dict[str, float]()
    while free:
        left = mass - fsum(pinned.values())
        total = fsum(weights[n] for n in free)
        share = {n: left * (weights[n] / total) for n in free}
        below = [n for n in free if share[n] < low[n]]
        above = [n for n in free if share[n] > high[n]]
        if not below and not above:
            return pinned | share
        lacking = fsum(low[n] - share[n] for n in below)
        excess = fsum(share[n] - high[n] for n in above)
        pinned |= {n: low[n] for n in below} if lacking >= excess else {n: high[n] for n in above}
        free = [n for n in free if n not in pinned]
    return pinned


def _check(
    names: list[str], weights: Mapping[str, float], floors: Mapping[str, float], caps: Mapping[str, float]
) -> None:
    """Refuse what no share vector can satisfy."""
    if not names:
        raise ValueError("no arms")
    for name in names:
        if not (isfinite(weights[name]) and weights[name] >= 0):
            raise ValueError(f"weight of {name} is {weights[name]}")
        if not 0 <= floors[name] <= caps[name] <= 1:
            raise ValueError(f"{name}: floor {floors[name]} and cap {caps[name]} are not 0 <= floor <= cap <= 1")
    if (total := fsum(floors[n] for n in names)) > 1 + TOLERANCE:
        raise ValueError(f"floors sum to {total}")
    if not any(caps[n] > 0 for n in names):
        raise ValueError("every cap is 0")


def to_units(shares: Mapping[str, float]) -> dict[str, int]:
    """Shares as integers that sum to exactly 2^32: largest remainder, ties by name; a share of 0 stays 0."""
    names = sorted(shares)
    total = fsum(shares[n] for n in names)
    exact = {n: shares[n] / total * SHARE_UNIT for n in names}
    units = {n: int(exact[n]) for n in names}
    by_remainder = sorted(names, key=lambda n: (units[n] - exact[n], n))
    for name in by_remainder[: SHARE_UNIT - sum(units.values())]:
        units[name] += 1
    return units


def cap_units(caps: Mapping[str, float]) -> dict[str, int]:
    """Caps in the same units, rounded up, so that no rounded share lies over its rounded cap."""
    return {n: min(SHARE_UNIT, ceil(caps[n] * SHARE_UNIT)) for n in sorted(caps)}
