from __future__ import annotations

import pytest

from andrea_rundir import faults


def test_the_sentence_comes_first_and_only_known_facts_follow() -> None:
    fault = faults.BadConfig("the cap is too low", where="policy.toml: arms.a.cap", found="0.1", todo="raise it")
    assert fault.lines() == [
        "the cap is too low",
        "where:    policy.toml: arms.a.cap",
        "found:    0.1",
        "to do:    raise it",
    ]
    assert str(fault) == "\n".join(fault.lines())
    assert str(faults.Refused("no")) == "no"
    assert faults.Refused("no", found="a\nb").lines() == ["no", "found:    a", "          b"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (faults.Refused, 1),
        (faults.Usage, 2),
        (faults.NoDevice, 69),
        (faults.Held, 75),
        (faults.BadConfig, 78),
        (faults.NoCheckpoint, 78),
    ],
)
def test_every_kind_has_its_exit_code(kind: type[faults.Fault], code: int) -> None:
    assert kind("x").exit_code == code
    assert issubclass(kind, faults.Fault)


def test_a_halt_knows_its_step() -> None:
    halt = faults.Halt("diverged", step=120, todo="go back")
    assert (halt.exit_code, halt.step, halt.lines()) == (78, 120, ["diverged", "to do:    go back"])
