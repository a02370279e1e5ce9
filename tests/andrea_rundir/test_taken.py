"""What the trainer took up, read back from its events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from andrea_rundir import taken
from andrea_rundir.eventlog import EventLog
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.plan import SHARE_UNIT, RoundPlan
from andrea_rundir.planfile import Line

ARMS = {"prose": "f00d", "sums": "beef"}


def plan(number: int, share: int = 1, policy: str = "0-abc") -> RoundPlan:
    zero = {"prose": 0, "sums": 0}
    return RoundPlan(
        round=number,
        first=10 * number + 1,
        last=10 * number + 10,
        policy=policy,
        arms=ARMS,
        shares={"prose": share, "sums": SHARE_UNIT - share},
        cursors=zero,
        credits=zero,
        limits={"prose": None, "sums": None},
        caps=dict.fromkeys(ARMS, SHARE_UNIT),
        steps=None,
    )


def told(run: RunDir, *acts: Line | str) -> list[tuple[int, int, bool]]:
    """Number, share and fallback of what is taken for the plan."""
    log = EventLog(run.events)
    for act in acts:
        if isinstance(act, str):
            log.append("start", step=0, policy={"id": act, "text": f"text of {act}", "arms": ARMS})
        elif act.fallback:
            log.append("fallback", **act.plan.to_json(), reason="no plan")
        else:
            log.append("round", **act.to_json())
    assert log.close()
    return [(line.plan.round, line.plan.shares["prose"], line.fallback) for line in taken.lines(run)]


def test_rounds_come_in_their_order_with_each_policy_said_once(tmp_path: Path) -> None:
    run, later = RunDir(tmp_path), Line(plan(2, policy="20-def"), policy_text="another")
    assert told(run, "0-abc", Line(plan(0)), Line(plan(1), fallback=True), later, Line(plan(3, policy="20-def"))) == [
        (0, 1, False),
        (1, 1, True),
        (2, 1, False),
        (3, 1, False),
    ]
    assert [line.policy_text for line in taken.lines(run)] == ["text of 0-abc", None, "another", None]
    assert taken.newest(run) == 3
    assert taken.policy(run, "20-def", "of the test") == ("another", ARMS)
    assert taken.policy(run, "0-abc", "of the test") == ("text of 0-abc", ARMS)


def test_what_is_begun_again_as_before_leaves_the_rest_and_otherwise_voids_it(tmp_path: Path) -> None:
    run, first = RunDir(tmp_path), [Line(plan(n)) for n in range(4)]
    assert told(run, "0-abc", *first, Line(plan(1))) == [(n, 1, False) for n in range(4)]
    assert told(run, replace(first[1], plan=plan(1, share=2))) == [(0, 1, False), (1, 2, False)]


@pytest.mark.parametrize("lost", ["arms", "policy", "shares"])
def test_a_spoilt_round_is_left_out(lost: str, tmp_path: Path) -> None:
    run, log = RunDir(tmp_path), EventLog(tmp_path / "events")
    spoilt: dict[str, Any] = Line(plan(0), policy_text="a text").to_json()
    del spoilt[lost]
    log.append("round", **spoilt)
    assert log.close()
    assert taken.lines(run) == [] and taken.newest(run) is None
    with pytest.raises(BadConfig, match="of the test, is nowhere to be found"):
        taken.policy(run, "0-abc", "of the test")


def test_nothing_is_taken_from_nothing(tmp_path: Path) -> None:
    assert taken.lines(RunDir(tmp_path)) == [] and taken.newest(RunDir(tmp_path)) is None
