from math import fsum, inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus.portions import allot, portions
from andrea_rundir.policy import parse

PHASES = """
[arms.a]
path = "a"
[arms.b]
path = "b"
cap = 0.25
[[phases]]
name = "warm-up"
until_step = 200
arms = ["a"]
"""


def test_each_phase_counts_by_its_length() -> None:
    policy = parse(PHASES, "policy", Path("/"))
    assert portions(policy, 1000) == pytest.approx({"a": 0.2 + 0.8 * 0.75, "b": 0.8 * 0.25})
    assert portions(policy, 100) == pytest.approx({"a": 1.0, "b": 0.0})
    assert portions(policy, 200) == pytest.approx({"a": 1.0, "b": 0.0})


def test_what_a_full_arm_cannot_take_goes_to_the_others_in_their_ratio() -> None:
    assert allot({"a": 0.5, "b": 0.25, "c": 0.25}, 100, {"a": 10, "b": inf, "c": inf}) == {"a": 10, "b": 45, "c": 45}
    assert allot({"a": 0.5, "b": 0.5}, 100, {"a": 10, "b": 20}) == {"a": 10, "b": 20}
    assert allot({"a": 0.0, "b": 1.0}, 100, {"a": 10, "b": inf}) == {"a": 0, "b": 100}


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 100)), min_size=1, max_size=6), st.floats(0, 200))
def test_nothing_is_lost_and_no_limit_broken(arms: list[tuple[float, float]], total: float) -> None:
    shares = {str(i): share for i, (share, _) in enumerate(arms)}
    most = {str(i): limit for i, (_, limit) in enumerate(arms)}
    given_out = allot(shares, total, most)
    assert all(given_out[arm] <= most[arm] * (1 + 1e-9) for arm in shares)
    assert fsum(given_out.values()) == pytest.approx(min(total, fsum(most.values())))
