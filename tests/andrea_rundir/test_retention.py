from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir.retention import doomed

CADENCE = 100


def kept(steps: Collection[int], **changes: object) -> list[int]:
    rules: dict[str, object] = {
        "every": CADENCE,
        "keep_last": 10,
        "keep_every": 10_000,
        "best": None,
        "protected": (),
        "regressed": False,
    }
    gone = doomed(steps, **(rules | changes))  # type: ignore[arg-type]
    return sorted(set(steps) - set(gone))


def test_nothing_and_little_is_kept_whole() -> None:
    assert kept([]) == []
    assert kept([0]) == [0]
    assert kept([0, 37]) == [0, 37]
    assert kept([2100, 2200, 2300], keep_last=1) == [2200, 2300]


def test_the_last_k_on_the_cadence() -> None:
    assert kept([2100, 2200, 2300, 2400, 2500], keep_last=3) == [2300, 2400, 2500]


def test_tenths_reach_two_hundred_cadences_back_and_no_further() -> None:
    steps = range(1_000_100, 1_030_100, CADENCE)
    newest = 1_030_000
    old = [step for step in kept(steps) if step <= newest - 10 * CADENCE]
    assert old == [1_010_000, *range(1_011_000, 1_030_000, 1000)]
    assert kept([9_000, 9_100, 29_000, 29_100], keep_last=2, keep_every=10**9) == [29_000, 29_100]
    assert kept([9_000, 9_100, 28_900, 29_000], keep_last=2, keep_every=10**9) == [9_000, 28_900, 29_000]


def test_multiples_of_keep_every_stay_for_ever() -> None:
    steps = [0, 5_000, 10_000, 20_000, 20_100, 500_000, 500_100]
    assert kept(steps, keep_last=2) == [0, 10_000, 20_000, 500_000, 500_100]


def test_the_newest_three_off_the_cadence() -> None:
    steps = [2101, 2102, 2103, 2104, 2110, 2200, 2300, 2400]
    assert kept(steps, keep_last=2) == [2103, 2104, 2110, 2300, 2400]


def test_the_best_and_the_protected_stay() -> None:
    steps = range(100_100, 130_000, CADENCE)
    assert {100_300, 100_700, 101_100} <= set(kept(steps, best=100_300, protected=[100_700, 101_100, 7]))
    assert not {100_300, 100_700} & set(kept(steps))


def test_nothing_up_to_the_best_goes_while_regressed() -> None:
    steps = range(100_100, 130_000, CADENCE)
    calm, regressed = kept(steps, best=120_000), kept(steps, best=120_000, regressed=True)
    assert regressed == sorted({*calm, *range(100_100, 120_001, CADENCE)})
    assert kept(steps, best=None, regressed=True) == kept(steps)


def test_the_doomed_come_oldest_first() -> None:
    gone = doomed(
        [300, 100, 200, 500, 400], every=1, keep_last=2, keep_every=10**6, best=None, protected=(), regressed=False
    )
    assert gone == sorted(gone)


@given(
    st.sets(st.integers(0, 5_000), max_size=60),
    st.integers(1, 50),
    st.integers(2, 10),
    st.integers(1, 100),
    st.one_of(st.none(), st.integers(0, 5_000)),
    st.sets(st.integers(0, 5_000), max_size=3),
    st.booleans(),
)
def test_the_newest_two_never_go_and_a_second_look_finds_nothing_more(
    steps: set[int], every: int, last: int, many: int, best: int | None, protected: set[int], regressed: bool
) -> None:
    rules = {
        "every": every,
        "keep_last": last,
        "keep_every": every * many,
        "best": best,
        "protected": protected,
        "regressed": regressed,
    }
    left = kept(steps, **rules)
    assert left[-2:] == sorted(steps)[-2:]
    assert kept(left, **rules) == left
    assert (protected | {best}) & steps <= set(left)


def test_a_whole_run_pruned_as_it_goes_keeps_what_one_look_at_its_end_would() -> None:
    disk: list[int] = [0]
    most = 0
    for step in range(CADENCE, 200_001, CADENCE):
        disk = kept([*disk, step])
        most = max(most, len(disk))
    expected = {*range(0, 200_001, 10_000), *range(180_000, 200_001, 1000), *range(199_100, 200_001, CADENCE)}
    assert disk == sorted(expected)
    assert most <= 21 + 21 + 10
