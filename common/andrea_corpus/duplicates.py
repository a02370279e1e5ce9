"""How many documents of an arm stand in another arm too, word for word, in bounded memory.

Exact up to two million different documents; past that a part of them, chosen by digest and so the same part in every
arm, speaks for all. Pure. Imports numpy.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST = 2_000_000
"""Different digests kept in memory, of all arms together."""
FRESH = 500_000
"""Digests that wait to be sorted in."""


class _Counted(NamedTuple):
    """Different digests, sorted, and how many documents have each."""

    digests: NDArray[np.uint64]
    counts: NDArray[np.int64]


class Duplicates:
    """`add` every document's digest under its arm, then `shared`."""

    def __init__(self) -> None:
        self._arms: dict[str, _Counted] = {}
        self._fresh: dict[str, array[int]] = {}
        self._waiting = 0
        self.halvings = 0
        """How often the part that is looked at was halved; 0 = all."""

    def add(self, arm: str, digest: bytes) -> None:
        """A document of `arm`, by the digest of its text."""
        number = int.from_bytes(digest[:8], "little")
        if number >> (64 - self.halvings):
            return
        self._fresh.setdefault(arm, array("Q")).append(number)
        self._waiting += 1
        if self._waiting >= FRESH:
            self._sort_in()

    def shared(self) -> dict[str, int]:
        """Documents of each arm whose text stands in another arm as well; an estimate after halvings."""
        self._sort_in()
        everywhere = [arm.digests for arm in self._arms.values()]
        texts, arms = np.unique(np.concatenate([np.empty(0, np.uint64), *everywhere]), return_counts=True)
        several = texts[arms > 1]
        return {
            name: int(arm.counts[np.isin(arm.digests, several)].sum()) << self.halvings
            for name, arm in self._arms.items()
        }

    def _sort_in(self) -> None:
        for name, fresh in self._fresh.items():
            known = self._arms.get(name, _Counted(np.empty(0, np.uint64), np.empty(0, np.int64)))
            digests, place = np.unique(np.concatenate([known.digests, np.array(fresh, np.uint64)]), return_inverse=True)
            weights = np.concatenate([known.counts, np.ones(len(fresh), np.int64)])
            self._arms[name] = _Counted(digests, np.bincount(place, weights).astype(np.int64))
        self._fresh, self._waiting = {}, 0
        while sum(len(arm.digests) for arm in self._arms.values()) > MOST:
            self.halvings += 1
            for name, arm in self._arms.items():
                kept = arm.digests >> np.uint64(64 - self.halvings) == 0
                self._arms[name] = _Counted(arm.digests[kept], arm.counts[kept])
