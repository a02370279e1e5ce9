from __future__ import annotations

import pytest

from andrea_cli import output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (9, "9 s"),
        (59.6, "1 min"),
        (372, "6 min 12 s"),
        (3600, "1 h"),
        (7261, "2 h 1 min"),
        (86400 * 23 + 3600 * 4, "23 d 4 h"),
    ],
)
def test_span(seconds: float, text: str) -> None:
    assert output.span(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (10_619_912, "10.6 MB"), (1_184_385_032, "1.18 GB")]
)
def test_size(count: int, text: str) -> None:
    assert output.size(count) == text
