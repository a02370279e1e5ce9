from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir import policy
from andrea_rundir.faults import BadConfig

TWO = '[arms.a]\npath = "a.txt"\n[arms.b]\npath = "b.txt"\n'


def parse(text: str) -> policy.Policy:
    return policy.parse(text, "policy.toml", Path("/texts"))


def refused(text: str) -> BadConfig:
    with pytest.raises(BadConfig) as caught:
        parse(text)
    return caught.value


def test_defaults() -> None:
    made = parse(TWO)
    assert made.learner == "slope"
    arm = made.arms["a"]
    assert (arm.format, arm.errors, arm.floor, arm.cap, arm.prior) == ("auto", "strict", 0.0, 1.0, 1.0)
    assert arm.max_epochs is None and made.phases == []


def test_relative_sources_start_at_the_file_and_are_stored_absolute(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[arms.a]\npath = "sub/*.txt"\n[arms.b]\npath = ["x", "/abs/y"]\n')
    made = policy.load(file)
    assert made.arms["a"].path == f"{tmp_path}/sub/*.txt"
    assert made.arms["b"].path == [f"{tmp_path}/x", "/abs/y"]
    assert policy.parse(policy.dump(made), "again", Path("/elsewhere")) == made


PHASED = (
    TWO.replace('"a.txt"', '"a.txt"\nfloor = 0.1\nprior = 2')
    + '[[phases]]\nname = "warm-up"\nuntil_step = 200\narms = ["b"]\n'
    + '[[phases]]\nname = "mix"\nuntil_step = 400\nfloor = { b = 0.25 }\ncap = { a = 0.5 }\n'
)


def test_limits_follow_the_phases_and_then_every_arm_has_its_own() -> None:
    made = parse(PHASED)
    for step in (1, 200):
        found = made.limits(step)
        assert (found.phase, found.arms, found.floors, found.caps) == (
            "warm-up",
            ("b",),
            {"b": 0.0},
            {"b": 1.0},
        )
    for step in (201, 400):
        found = made.limits(step)
        assert found.phase == "mix" and found.arms == ("a", "b")
        assert found.floors == {"a": 0.1, "b": 0.25} and found.caps == {"a": 0.5, "b": 1.0}
        assert found.priors == {"a": 2.0, "b": 1.0}
    after = made.limits(401)
    assert (after.phase, after.floors, after.caps) == ("", {"a": 0.1, "b": 0.0}, {"a": 1.0, "b": 1.0})


def test_a_last_phase_without_end_lasts_for_ever() -> None:
    made = parse(TWO + '[[phases]]\nname = "only"\narms = ["a"]\n')
    assert made.limits(10**9).arms == ("a",)


def test_dump_gives_the_same_policy_back() -> None:
    made = parse(PHASED + "")
    assert policy.parse(policy.dump(made), "x", Path("/y")) == made


@given(
    names=st.sets(st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True), min_size=1, max_size=5),
    floor=st.floats(0, 0.2),
    prior=st.floats(1e-6, 1e6),
    epochs=st.none() | st.floats(0.1, 100),
    path=st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text),
)
def test_dump_then_parse_is_the_same(
    names: set[str], floor: float, prior: float, epochs: float | None, path: str
) -> None:
    arms = {name: policy.Arm(path=["/t/" + path, "/u"], floor=floor, prior=prior, max_epochs=epochs) for name in names}
    made = policy.Policy(
        learner="ucb1", arms=arms, phases=[policy.Phase(name="p", until_step=7, cap={min(names): 1.0})]
    )
    again = policy.parse(policy.dump(made), "x", Path("/"))
    assert policy.dump(again) == policy.dump(policy.parse(policy.dump(again), "x", Path("/")))
    assert again.phases == made.phases and again.arms.keys() == made.arms.keys()
    assert all(again.arms[n].prior == prior and again.arms[n].max_epochs == epochs for n in names)


@pytest.mark.parametrize(
    ("text", "key", "found", "expected"),
    [
        ("", "arms", "{}", ""),
        ("[arms]", "arms", "{}", "at least 1"),
        ("[arms.a]\nfloor = 0.1", "arms.a.path", "", ""),
        ("[arms.a]\npath = 3", "arms.a.path", "3", "a file, folder or glob"),
        ("[arms.a]\npath = []", "arms.a.path", "[]", "a file, folder or glob"),
        ("[arms.a]\npath = ['x', '']", "arms.a.path", "", "a file, folder or glob"),
        ('[arms."a b"]\npath = "x"', "arms.a b.[key]", '"a b"', "pattern"),
        (TWO + "floor = nan", "arms.b.floor", "nan", ""),
        (TWO + "floor = 1.5", "arms.b.floor", "1.5", "less than or equal to 1"),
        (TWO + "floor = -0.1", "arms.b.floor", "-0.1", "greater than or equal to 0"),
        (TWO + "floor = 0.6\ncap = 0.5", "arms.b", "floor 0.6, cap 0.5", "floor <= cap"),
        (TWO + "floor = 0.6\n[arms.c]\npath='c'\nfloor=0.6", "arms", "1.2", "at most 1"),
        ("[arms.a]\npath='a'\ncap=0.3\n[arms.b]\npath='b'\ncap=0.3", "arms", "0.6", "at least 1"),
        (TWO + "prior = 0", "arms.b.prior", "0", "greater than 0"),
        (TWO + "max_epochs = 0", "arms.b.max_epochs", "0", "greater than 0"),
        (TWO + "errors = 'ignore'", "arms.b.errors", '"ignore"', '"strict" or "replace"'),
        (TWO + "flor = 0.1", "arms.b.flor", "flor", "did you mean floor?"),
        (TWO + "until_step = 1", "arms.b.until_step", "until_step", "did you mean [phases.NAME] until_step?"),
        ("learnr = 'slope'\n" + TWO, "learnr", "learnr", "did you mean learner?"),
        ("learner = 'best'\n" + TWO, "learner", '"best"', '"slope", "ucb1"'),
        (TWO + "[[phases]]\nuntil_step = 5", "phases.0.name", "", ""),
        (TWO + "[[phases]]\nname='p'\narms=[]", "phases.0.arms", "[]", "names of arms"),
        (TWO + "[[phases]]\nname='p'\narms=['a', 'a']", "phases.0.arms", "", "each once"),
        (TWO + "[[phases]]\nname='p'\narms=['aa']", "phases.0.arms", '"aa"', "did you mean a?"),
        (TWO + "[[phases]]\nname='p'\ncap={ z9 = 1.0 }", "phases.0.cap", '"z9"', "one of a, b"),
        (TWO + "[[phases]]\nname='p'\narms=['a']\nfloor={ b = 0.1 }", "phases.0.floor", '"b"', "one of a"),
        (TWO + "[[phases]]\nname='p'\narms=['a']\ncap={ a = 0.5 }", "phases.0", "0.5", "at least 1"),
        (
            TWO + "[[phases]]\nname='p'\n[[phases]]\nname='q'",
            "phases.0.until_step",
            "no until_step",
            "a step",
        ),
        (
            TWO + "[[phases]]\nname='p'\nuntil_step=20\n[[phases]]\nname='q'\nuntil_step=20",
            "phases.1.until_step",
            "20",
            "a step after 20",
        ),
        (
            TWO + "[[phases]]\nname='p'\nuntil_step=20\n[[phases]]\nname='p'",
            "phases.1.name",
            '"p"',
            "of its own",
        ),
        (TWO + "[[phases]]\nname='p'\nuntil_step=0", "phases.0.until_step", "0", ""),
    ],
)
def test_bad_policies_name_key_found_expected(text: str, key: str, found: str, expected: str) -> None:
    fault = refused(text)
    assert fault.where == f"policy.toml: {key}"
    assert found in fault.found
    assert expected in fault.expected


def test_an_arm_given_twice_is_not_toml() -> None:
    assert "TOML" in refused(TWO + "[arms.a]\npath = 'c'").what


def test_sums_are_compared_with_tolerance() -> None:
    third = "".join(f"[arms.a{i}]\npath = 'x{i}'\nfloor = {{0}}\ncap = {{1}}\n" for i in range(3))
    parse(third.format(0.3333333334, 0.3333333334))
    parse(third.format(0.3333333333, 0.3333333333))
    assert refused(third.format(0.333334, 0.333334)).found == "1"
    assert refused(third.format(0.333332, 0.333332)).found == "0.999996"


def test_limits_must_also_hold_after_the_last_phase() -> None:
    greedy = "[arms.a]\npath='a'\nfloor=0.6\n[arms.b]\npath='b'\nfloor=0.6\n[[phases]]\nname='p'\narms=['a']\n"
    assert parse(greedy).limits(1).arms == ("a",)
    fault = refused(greedy + "until_step = 100\n")
    assert fault.where == "policy.toml: arms" and fault.found == "1.2"


def test_phases_end_with_a_round() -> None:
    made = parse(PHASED)
    made.check_rounds(20)
    with pytest.raises(BadConfig) as caught:
        made.check_rounds(19)
    assert caught.value.found == "200" and caught.value.expected == "a multiple of 19; the nearest is 209"


def test_policy_id_tells_the_start_and_the_text() -> None:
    first = policy.policy_id("learner = 'slope'\n", 0)
    assert first.startswith("0-") and len(first) == 14
    assert policy.policy_id("learner = 'slope'\n", 100).split("-")[1] == first.split("-")[1]
    assert policy.policy_id("learner = 'ucb1'\n", 0) != first
