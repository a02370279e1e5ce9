from __future__ import annotations

import pytest

from andrea_train.patience import NAP, Patience


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def patience(seconds: float, clock: Clock) -> Patience:
    return Patience(seconds, lambda: None, clock=clock, sleep=clock.sleep)


def waited(budget: Patience, clock: Clock) -> float:
    began = clock.now
    while budget.wait():
        pass
    return clock.now - began


def test_it_is_full_at_first_and_fills_up_again_by_one_per_cent() -> None:
    clock = Clock()
    budget = patience(30.0, clock)
    assert waited(budget, clock) == pytest.approx(30.0, abs=0.5)
    assert waited(budget, clock) == 0.0
    clock.now += 1000.0
    assert waited(budget, clock) == pytest.approx(10.0, abs=0.2)
    clock.now += 1e6
    assert waited(budget, clock) == pytest.approx(30.0, abs=0.5)


def test_over_a_long_time_one_per_cent_is_spent_at_most() -> None:
    clock = Clock()
    budget = patience(2.0, clock)
    spent = 0.0
    for _ in range(2000):
        clock.now += 3.0
        spent += waited(budget, clock)
    assert spent <= 2.0 + 0.01 * clock.now + NAP


def test_without_patience_nothing_is_waited_for_and_nobody_is_heard() -> None:
    clock, heard = Clock(), list[int]()
    budget = Patience(0.0, lambda: heard.append(1), clock=clock, sleep=clock.sleep)
    assert not budget.wait() and clock.now == 0.0 and heard == []


def test_a_wish_to_stop_ends_the_wait() -> None:
    def stop() -> None:
        raise InterruptedError

    clock = Clock()
    with pytest.raises(InterruptedError):
        Patience(5.0, stop, clock=clock, sleep=clock.sleep).wait()
