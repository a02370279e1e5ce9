from __future__ import annotations

import math

import pytest

from andrea_proxy.learners.base import BURN_IN, EMA_RATE, MOST_BITS, SPREADS, Progress, bits_per_byte
from harness.learning_curves import gauss


def test_bits_per_byte_of_a_uniform_guess_over_bytes_is_eight() -> None:
    assert bits_per_byte(math.log(256.0), 1000, 1000) == pytest.approx(8.0, rel=1e-15)
    assert bits_per_byte(math.log(256.0), 250, 1000) == pytest.approx(2.0, rel=1e-15)  # four bytes a token


@pytest.mark.parametrize("loss", [None, math.nan, math.inf, -math.inf])
def test_no_usable_loss_has_no_bits(loss: float | None) -> None:
    assert bits_per_byte(loss, 1000, 1000) is None


@pytest.mark.parametrize("size", [0, -1, math.nan])
def test_no_bytes_have_no_bits(size: float) -> None:
    assert bits_per_byte(1.0, 1000, size) is None


def test_a_diverging_loss_is_bounded() -> None:
    assert bits_per_byte(1e200, 1000, 1) == MOST_BITS
    assert bits_per_byte(-1e200, 1000, 1) == 0.0


def test_reward_settles_at_the_slope_over_the_rate() -> None:
    progress = Progress()
    for n in range(2000):
        progress.add(1, 5.0 - 1e-3 * n)
    assert progress.reward == pytest.approx(1e-3 / EMA_RATE, rel=1e-3)
    assert progress.pulls == progress.records == 2000


def test_reward_of_a_loss_that_stands_still_is_nothing_whatever_its_level() -> None:
    low, high = Progress(), Progress()
    for _ in range(500):
        low.add(1, 0.5)
        high.add(1, 7.5)
    assert (low.reward, high.reward) == (0.0, 0.0)


def test_a_spike_is_pulled_in_and_a_lasting_change_is_followed() -> None:
    progress = Progress()
    for n in range(200):
        progress.add(1, 3.0 + 0.3 * gauss(n))
    before = progress.ema
    seen = progress.add(1, 1e6)
    assert seen is not None and seen < before + SPREADS
    assert abs(progress.ema - before) < 0.1
    for n in range(400):
        progress.add(1, 9.0 + 0.3 * gauss(n))
    assert progress.ema == pytest.approx(9.0, abs=0.3)


def test_an_arm_without_scatter_can_still_move() -> None:
    progress = Progress()
    for _ in range(100):
        progress.add(1, 2.0)
    for _ in range(600):
        progress.add(1, 1.0)
    assert progress.ema == pytest.approx(1.0, abs=0.01)


def test_pulls_without_a_loss_count_as_pulls_and_change_nothing_else() -> None:
    progress = Progress()
    progress.add(2, 3.0)
    assert progress.add(5, None) is None
    assert (progress.pulls, progress.records, progress.ema) == (7, 1, 3.0)
    assert progress.add(0, 1.0) is None
    assert progress.pulls == 7


def test_burn_in_takes_the_first_losses_as_they_are() -> None:
    progress = Progress()
    falling = [8.0 - n * 0.5 for n in range(BURN_IN)]
    assert [progress.add(1, bits) for bits in falling] == falling
