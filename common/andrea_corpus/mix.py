"""The text that a tokenizer is learned from: every arm in the measure in which the model will eat it.

Pieces are taken evenly from all of an arm's text, not from its head; an arm that is eaten more often than it is long
is taken more than once. Pure but for the reading. Imports this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import fsum, inf

from andrea_corpus.portions import allot, portions
from andrea_corpus.text import Piece
from andrea_rundir.policy import Policy

MOST = 64 << 20
"""Bytes that are looked at: more change a vocabulary of some thousand tokens hardly at all."""
BYTES_A_TOKEN = 4
"""Roughly, of text in a BPE of this size."""
_LONG_WORD = re.compile(r"(\S{256})\S+|(\s{256})\s+")


@dataclass(frozen=True)
class Learn:
    """A wish: a BPE of at most `vocab_size` ids, for a run of `steps` steps of `tokens` tokens each."""

    vocab_size: int
    steps: int
    tokens: int


def copies(policy: Policy, lengths: Mapping[str, int], wish: Learn) -> dict[str, float]:
    """How often each arm's text, of so many bytes, is taken; `lengths` by arm.

    In proportion to what the run will read of the arm: its share of pulls, and no more than its `max_epochs`.
    """
    most = {arm: (policy.arms[arm].max_epochs or inf) * length for arm, length in lengths.items()}
    eaten = allot(portions(policy, wish.steps), wish.steps * wish.tokens * BYTES_A_TOKEN, most)
    scale = min(MOST, sum(lengths.values())) / fsum(eaten.values())
    return {arm: eaten[arm] * scale / lengths[arm] for arm in sorted(lengths)}


def sampled(pieces: Iterable[Piece], times: float) -> Iterator[str]:
    """Every piece `times` times on average: with 0.25 every fourth, with 2.5 each two or three times.

    Words of thousands of letters are shortened: a trainer keeps tens of bytes for each letter of every word it meets.
    """
    owed = 0.5
    for piece in pieces:
        owed += times
        while owed >= 1:
            owed -= 1
            yield _LONG_WORD.sub(r"\1\2", piece.data.decode())
