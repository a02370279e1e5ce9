"""Which checkpoints may be deleted: a pure function of their steps. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Collection

_TENTHS_REACH = 200
"""Every tenth cadence file is kept this many cadences back."""

_OFF_CADENCE = 3
"""So many of the files that a signal asked for are kept."""


def doomed(
    steps: Collection[int],
    *,
    every: int,
    keep_last: int,
    keep_every: int,
    best: int | None,
    protected: Collection[int],
    regressed: bool,
) -> list[int]:
    """The steps to delete, oldest first, of `steps`, all of them valid files on disk.

    Kept are: the newest two of all; the newest `keep_last` on the cadence `every`; multiples of ten
    cadences not more than 200 cadences before the newest; multiples of `keep_every`; the newest three off
    the cadence; `best`; `protected`; and, while the run is `regressed`, everything up to `best`.
    """
    ordered = sorted(steps)
    newest = ordered[-1] if ordered else 0
    kept = set(ordered[-2:]) | set(protected)
    kept.update([step for step in ordered if step % every == 0][-keep_last:])
    kept.update([step for step in ordered if step % every][-_OFF_CADENCE:])
    kept.update(s for s in ordered if s % (10 * every) == 0 and newest - s <= _TENTHS_REACH * every)
    kept.update(step for step in ordered if step % keep_every == 0)
    if best is not None:
        kept.update(step for step in ordered if step == best or (regressed and step < best))
    return [step for step in ordered if step not in kept]
