from __future__ import annotations

import pydoc_data.topics

import numpy as np
import pytest

from andrea_train import looped

REAL = "\n".join(pydoc_data.topics.topics.values())
WINDOWS = [REAL[i : i + 128] for i in range(0, 64 * 500, 500)]
RATIO = looped.yardstick(window.encode() for window in WINDOWS)


def babble(seed: int) -> bytes:
    """What an untrained byte model writes: every byte alike."""
    return np.random.default_rng(seed).integers(0, 256, 128).astype(np.uint8).tobytes()


@pytest.mark.parametrize(
    "text",
    [
        "region " * 18,
        "a " + "the same thing again and again, " * 4,
        "x = 1\n" * 20,
        ('"I do not know," said he. ' * 6)[:128],
        "It began well, as these things do, and then it said no no no no no no no no no no no no no no no no no no",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ],
)
def test_loops_are_flagged(text: str) -> None:
    assert looped.verdict(text.encode(), RATIO) is not None


@pytest.mark.parametrize("seed", range(6))
def test_early_babble_is_not(seed: int) -> None:
    assert looped.verdict(babble(seed), RATIO) is None


def test_real_text_is_not() -> None:
    flagged = [text for text in WINDOWS if looped.verdict(text.encode(), RATIO)]
    assert len(flagged) <= len(WINDOWS) // 50


def test_blanks_and_rules_are_no_loops() -> None:
    assert (
        looped.verdict(("Title\n" + "=" * 60 + "\n" + " " * 40 + "and then a line of text follows").encode(), RATIO)
        is None
    )


def test_only_runs_of_three_repeats_and_twenty_four_characters_count() -> None:
    assert looped.covered("abcdefghij" * 2) == 0.0
    assert looped.covered("ab" * 11) == 0.0
    assert looped.covered("ab" * 12) == 1.0
    assert looped.covered("q" * 24 + "0123456789" + "rstuvwxyzABCDE") == pytest.approx(0.5)


def test_empty_text() -> None:
    assert looped.verdict(b"", RATIO) is None
