"""Does a text run in circles? The rule that tells a collapsed model from one that merely knows little yet.

Pure; standard library and numpy. The thresholds are the ones that flagged every looping model and none of 14 healthy
audits, early babble included, in the trials behind this project.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterable

import numpy as np

LONGEST_PERIOD = 64
LEAST_REPEATS = 3
LEAST_CHARACTERS = 24
COVERED_SHARE = 0.30
RATIO_OF_HELD_OUT = 0.8

_CODE_POINTS = codecs.lookup("utf-32-le")
"""Looked up now: a codec is a file, and later on descriptors may be short."""
_BLANKS = re.compile(r"\s+")
_RULES = re.compile(r"([-=_*.#~+|])\1+")


def squeeze(text: str) -> str:
    """Blanks and drawn rules shortened to one character: tables and indentation are no loops."""
    return _RULES.sub(r"\1", _BLANKS.sub(" ", text))


def covered(text: str) -> float:
    """The share of `text` that lies inside runs repeating a piece of at most 64 characters 3 times or more."""
    codes = np.frombuffer(_CODE_POINTS.encode(text, "surrogatepass")[0], dtype=np.uint32)
    inside = np.zeros(len(codes), dtype=bool)
    for period in range(1, min(LONGEST_PERIOD, len(codes) // LEAST_REPEATS) + 1):
        same = np.flatnonzero(np.diff(np.concatenate(([0], codes[:-period] == codes[period:], [0]))))
        for start, end in zip(same[::2], same[1::2], strict=True):
            length = end - start + period
            if length >= max(LEAST_CHARACTERS, LEAST_REPEATS * period):
                inside[start : start + length] = True
    return float(inside.mean()) if len(codes) else 0.0


def ratio(data: bytes) -> float:
    """Compressed size over size: small for repetitive text.

    Taken over bytes: as text, every byte that is not UTF-8 would become the same U+FFFD, and early babble a loop.
    """
    squeezed = squeeze(data.decode("latin-1")).encode("latin-1")
    return len(zlib.compress(squeezed, 9)) / max(1, len(squeezed))


def yardstick(held_out: Iterable[bytes]) -> float:
    """The compressibility that real text of a sample's length hardly ever reaches (its first percentile)."""
    ratios = [ratio(data) for data in held_out]
    return float(np.percentile(ratios, 1)) if ratios else 0.0


def verdict(data: bytes, held_out_ratio: float) -> str | None:
    """Why a sample (UTF-8, or nearly) counts as looped, in one phrase, or None."""
    share = covered(squeeze(data.decode("utf-8", "replace")))
    if share >= COVERED_SHARE:
        return f"{share:.0%} of it repeats short pieces"
    own = ratio(data)
    if own < RATIO_OF_HELD_OUT * held_out_ratio:
        return f"compresses to {own:.2f}, held-out text hardly under {held_out_ratio:.2f}"
    return None
