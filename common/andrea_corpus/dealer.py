"""From shares to pulls: which arms the sequences of a batch come from. Integers only, so credits are exact.

Before each pull every active arm earns its share of it as credit; the arm with the most credit (ties by name)
is pulled and pays one pull. Realised pulls then follow the shares in every window, not in expectation:

- Active arms do not change: after each pull a credit lies within (-1, H_K - 1], H_K = 1 + 1/2 + ... + 1/K
  (the cup game), so the pulls of any window are within H_K of its summed shares, however the shares change.
- Any masks at all: a credit lies within (K-1)/2 either way, which is tight, so the pulls of any window are
  within K-1 of the shares summed over the pulls at which the arm was active. Proof, in units of one pull: let
  T_m be the largest sum of m credits, f(m) = m(K-m)/2. By induction T_m <= f(m); m = 1 and m = K-1 (credits
  sum to 0) are the claim. Take the m largest arms S, with sum X, after a pull of p. If p is in S, X is at most
  its sum before. Else let R be the r arms of S that were active; with r = 0 nothing in S changed. For i in R,
  c_p >= c_i - 1 after the pull, and S with p gained nothing, so X + c_i - 1 <= f(m+1); S without R did not
  change, so X - sum of R <= f(m-r). The first, summed over R, plus the second: (r+1) X <= r + r f(m+1) +
  f(m-r) = (r+1) f(m) + r - r(r+1)/2, and r <= r(r+1)/2, so X <= f(m).

An arm whose cursor has reached its limit is out at once, in the middle of a batch too: it keeps its credit
unchanged, and `spread` gives its share to the others.

Pure; writes nothing; imports the unit of shares from `andrea_rundir.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from andrea_rundir.plan import SHARE_UNIT


class Exhausted(Exception):
    """The arms have fewer pulls left than a whole batch needs; nothing was dealt."""


@dataclass(frozen=True)
class Dealt:
    """One batch: pulls by arm (only arms that were pulled, by name), then all cursors and credits after it.

    `scaled` says that the caps of the arms left summed under 1 and were scaled up together.
    """

    counts: dict[str, int]
    cursors: dict[str, int]
    credits: dict[str, int]
    scaled: bool


def cursor_limit(max_epochs: float | None, windows: int) -> int | None:
    """How many pulls an arm of that many windows may ever get; None = no limit."""
    return None if max_epochs is None else int(max_epochs * windows)


def deal(
    shares: Mapping[str, int],
    cursors: Mapping[str, int],
    credits: Mapping[str, int],  # noqa: A002 - the field's word
    limits: Mapping[str, int | None],
    pulls: int,
    *,
    caps: Mapping[str, int],
) -> Dealt:
    """Deal one batch of `pulls` sequences; the result is the state for the next one.

    `shares` (of the arms of the phase, summing to 2^32) and `caps` are in units of 2^-32 pull; credits too.
    Arms that stand only in `cursors` or `credits`, and arms of cap 0, are masked: carried through unchanged.
    Raises Exhausted when the arms have fewer than `pulls` pulls left, ValueError when the shares do not sum to
    2^32.
    """
    if sum(shares.values()) != SHARE_UNIT or min(shares.values()) < 0:
        raise ValueError(f"shares sum to {sum(shares.values())}, not {SHARE_UNIT}")
    after = {name: cursors.get(name, 0) for name in sorted({*cursors, *shares})}
    credit = {name: credits.get(name, 0) for name in sorted({*credits, *shares})}
    counts: dict[str, int] = {}
    scaled = False
    active: list[str] = []
    current: dict[str, int] = {}
    for _ in range(pulls):
        still = [name for name in sorted(shares) if caps[name] > 0 and _open(after[name], limits[name])]
        if not still:
            raise Exhausted(f"{sum(counts.values())} of {pulls} pulls left")
        if still != active:
            active = still
            current, over = spread({n: shares[n] for n in active}, {n: caps[n] for n in active})
            scaled = scaled or over
        for name in active:
            credit[name] += current[name]
        pulled = max(active, key=credit.__getitem__)
        credit[pulled] -= SHARE_UNIT
        after[pulled] += 1
        counts[pulled] = counts.get(pulled, 0) + 1
    return Dealt(dict(sorted(counts.items())), after, credit, scaled)


def _open(cursor: int, limit: int | None) -> bool:
    """Whether an arm may be pulled again."""
    return limit is None or cursor < limit


def spread(shares: Mapping[str, int], caps: Mapping[str, int]) -> tuple[dict[str, int], bool]:
    """The shares of the arms that are left, brought up to 2^32, and whether that meant going over their caps.

    All are scaled up together, none over its cap; what a full arm cannot take passes on to the others in the
    ratio of their shares (equally, when all of those are 0). When the caps sum under 1, all caps are scaled
    up together instead and the answer is flagged. Since shares only grow, no arm can fall under its floor: the
    order is epoch limit, floor, cap, learner. The answer depends on which arms are left, not on the order in
    which the others went out. Shares that sum to 2^32 come back unchanged. Exact: integers, largest remainder.
    """
    if sum(shares.values()) == SHARE_UNIT:
        return dict(shares), False
    if sum(caps.values()) < SHARE_UNIT:
        return _apportion(SHARE_UNIT, caps), True
    free, full = dict(shares), dict[str, int]()
    while free:
        rest = SHARE_UNIT - sum(full.values())
        if not any(free.values()):
            free = dict.fromkeys(free, 1)
        total = sum(free.values())
        over = [name for name in free if free[name] * rest > caps[name] * total]
        if not over:
            full |= _apportion(rest, free)
            break
        for name in over:
            full[name] = caps[name]
            del free[name]
    return {name: full[name] for name in sorted(full)}, False


def _apportion(whole: int, weights: Mapping[str, int]) -> dict[str, int]:
    """`whole` divided in the ratio of the weights, in integers: largest remainder, ties by name."""
    total = sum(weights.values())
    parts = {name: whole * weights[name] // total for name in sorted(weights)}
    by_remainder = sorted(parts, key=lambda name: (-(whole * weights[name] % total), name))
    for name in by_remainder[: whole - sum(parts.values())]:
        parts[name] += 1
    return parts
