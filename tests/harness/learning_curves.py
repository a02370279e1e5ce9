"""Entries for learner tests: arms with known curves, numbers as history has them. No generator state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from hashlib import blake2b

from andrea_proxy.learners import StepRecord

TOKENS = 64
BYTES_A_TOKEN = 3


def unit(*key: object) -> float:
    """An even draw from (0, 1) keyed by its arguments."""
    digest = blake2b(repr(key).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") + 0.5) / 2**64


def gauss(*key: object) -> float:
    """A standard normal draw keyed by its arguments (Box-Muller)."""
    return math.sqrt(-2.0 * math.log(unit(*key, "r"))) * math.cos(2.0 * math.pi * unit(*key, "a"))


def entry(pulls: int, bits: float) -> tuple[int, float, int]:
    """`pulls` pulls at `bits` bits per byte, as an entry of history has them."""
    return pulls, bits * math.log(2.0) * BYTES_A_TOKEN, pulls * TOKENS * BYTES_A_TOKEN


def power_law(rest: float, depth: float, scale: float, exponent: float) -> Callable[[float], float]:
    """A true curve in bits per byte over pulls."""
    return lambda n: rest + depth * (1.0 + n / scale) ** -exponent


def run(
    curves: dict[str, Callable[[float], float]], steps: int, noise: float = 0.0, windows: float = 1e9
) -> Iterator[StepRecord]:
    """Every arm one pull a step."""
    for step in range(1, steps + 1):
        arms = {arm: entry(1, curve(step - 1.0) + noise * gauss(arm, step)) for arm, curve in sorted(curves.items())}
        yield StepRecord(step, TOKENS, arms, dict.fromkeys(arms, (step - 1) / windows))
