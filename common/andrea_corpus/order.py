"""Which window a pull gets, and the seed of every other random draw: pure functions, no generator state.

Everything here is a function of its arguments alone, in Python integers and BLAKE2b, so it gives the same
answer on every machine, in every version of numpy, and after every restart. Writes nothing; standard library
only.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b
from math import isqrt

_ROUNDS = 8
"""Four rounds are visibly biased where an arm has a handful of windows."""
_MASK = (1 << 64) - 1
_MULTIPLY_1 = 0xBF58476D1CE4E5B9
_MULTIPLY_2 = 0x94D049BB133111EB


@lru_cache(maxsize=1024)
def _round_keys(seed: int, fingerprint: str, epoch: int) -> tuple[int, ...]:
    """Eight 64-bit keys of one arm in one epoch."""
    text = f"andrea order 1\0{seed}\0{fingerprint}\0{epoch}"
    return struct.unpack("<8Q", blake2b(text.encode(), digest_size=8 * _ROUNDS).digest())


def permute(seed: int, fingerprint: str, epoch: int, n: int, i: int) -> int:
    """The image of `i` under the permutation of range(n) that belongs to (seed, fingerprint, epoch).

    A Feistel network over pairs (left, right) of digits in base a, with addition modulo a for the exclusive or
    (Black and Rogaway 2002, generalised Feistel), is a permutation of range(a * a); walking the cycle until it
    is back inside range(n) makes it one of range(n). a is the least even number from sqrt(n) on: little walking,
    and with an odd one all permutations would be even. The round function is SplitMix's finaliser (Steele et
    al. 2014).
    Raises ValueError when `i` is not in range(n).
    """
    if not 0 <= i < n:
        raise ValueError(f"index {i} is not in range({n})")
    keys = _round_keys(seed, fingerprint, epoch)
    a = 2 * (isqrt(n - 1) // 2 + 1)
    while True:
        left, right = divmod(i, a)
        for key in keys:
            z = (right + key) & _MASK
            z = ((z ^ (z >> 30)) * _MULTIPLY_1) & _MASK
            z = ((z ^ (z >> 27)) * _MULTIPLY_2) & _MASK
            left, right = right, (left + (z ^ (z >> 31))) % a
        i = left * a + right
        if i < n:
            return i


def window_of(seed: int, fingerprint: str, cursor: int, n: int) -> int:
    """The window that pull number `cursor` (from 0) of an arm with `n` windows gets: each once an epoch."""
    epoch, i = divmod(cursor, n)
    return permute(seed, fingerprint, epoch, n, i)


def stream_seed(seed: int, purpose: str, step: int) -> int:
    """A 63-bit seed for the draws of one purpose at one step, unrelated to those of any other."""
    text = f"andrea stream 1\0{seed}\0{purpose}\0{step}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
