from __future__ import annotations

import pytest

from andrea_rundir.sections import OptimizerConfig
from andrea_train.schedule import learning_rate


def rate(step: int) -> float:
    return learning_rate(step, OptimizerConfig(lr=1.0, min_lr=0.1, warmup_steps=10, max_steps=110))


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
    assert 0.9 < learning_rate(1, OptimizerConfig(lr=1.0, min_lr=0.0, warmup_steps=0, max_steps=10)) < 1.0
