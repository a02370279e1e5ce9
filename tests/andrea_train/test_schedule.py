from __future__ import annotations

import pytest

from andrea_train.schedule import learning_rate


def rate(step: int) -> float:
    return learning_rate(step, peak=1.0, floor=0.1, warmup=10, total=110)


def test_the_three_parts() -> None:
    assert rate(1) == pytest.approx(0.1)
    assert rate(10) == 1.0
    assert rate(60) == pytest.approx(0.55)
    assert rate(110) == 0.1
    assert rate(500) == 0.1


def test_it_rises_then_falls() -> None:
    rates = [rate(step) for step in range(1, 111)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[9:] == sorted(rates[9:], reverse=True)


def test_no_warm_up() -> None:
    assert learning_rate(1, peak=1.0, floor=0.0, warmup=0, total=10) < 1.0
    assert learning_rate(1, peak=1.0, floor=0.0, warmup=0, total=10) > 0.9
