"""What a plan depends on, what limits it, and what is said of that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea_rundir import planfile
from andrea_rundir.names import RunDir
from andrea_rundir.plan import SHARE_UNIT, RoundPlan
from harness import dry
from harness.dry import DryTrainer, desk, quiet

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

Make = Callable[..., RunDir]

LIMITED = """
max_epochs = 0.6
floor = 0.3
[[phases]]
name = "warm-up"
until_step = 20
floor = { prose = 0.7 }
[[phases]]
name = "main"
until_step = 400
cap = { prose = 0.45 }
"""


@pytest.fixture(scope="module")
def fresh(make: Make) -> RunDir:
    return make("fresh", {"optimizer": {"max_steps": 400}})


def copy(run: RunDir, to: Path) -> RunDir:
    return RunDir(Path(shutil.copytree(run.root, to)))


def plans(run: RunDir) -> list[RoundPlan]:
    return [line.plan for line in planfile.read(run.plan)]


def test_a_plan_rests_on_the_steps_up_to_two_rounds_before_it(
    fresh: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses that differ from step 41 on change the shares of no round before the one from step 61 on."""
    one = quiet(copy(fresh, tmp_path / "one"), 80)
    real, other = dry.loss_of, copy(fresh, tmp_path / "other")
    quiet(other, 40)
    monkeypatch.setattr(dry, "loss_of", lambda arm, cursor: real(arm, cursor) * (0.5 if arm == "sums" else 1.0))
    quiet(other, 80)
    assert plans(one)[:6] == plans(other)[:6] and plans(one)[6].shares != plans(other)[6].shares
    assert plans(one)[5].shares != plans(one)[0].shares


def test_the_first_two_rounds_follow_the_prior(make: Make, tmp_path: Path) -> None:
    run = make("prior", {"optimizer": {"max_steps": 400}}, rules="prior = 3.0\n")
    shares = [{arm: share / SHARE_UNIT for arm, share in plan.shares.items()} for plan in plans(quiet(run, 40))]
    assert shares[0] == shares[1] == {"prose": 0.25, "sums": 0.75} != shares[2]


def test_limits_of_each_phase_hold_and_what_an_epoch_limit_does_is_said(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    run = make("limited", {"optimizer": {"max_steps": 400}}, rules=LIMITED)
    with caplog.at_level("INFO", "dry"):
        quiet(run, 400)
    found = list(planfile.read(run.plan))
    both = [line for line in found if len(line.plan.shares) == 2]
    for line in both:
        prose, sums = (line.plan.shares[arm] / SHARE_UNIT for arm in ("prose", "sums"))
        assert prose >= 0.7 - 1e-9 if line.plan.first <= 20 else sums >= 0.55 - 1e-9
    last = [line for line in found if len(line.plan.shares) == 1]
    assert last and all(line.scaled and line.plan.shares == {"prose": SHARE_UNIT} for line in last)
    said = [record.message for record in caplog.records if "epochs" in record.message]
    assert len(said) == 1 and "sums" in said[0] and "scaled up" in said[0]


@pytest.mark.parametrize("learner", ["slope", "ucb1", "uniform", "fixed"])
def test_every_learner_of_a_policy_plans_and_is_restored(learner: str, fresh: RunDir, tmp_path: Path) -> None:
    one = copy(fresh, tmp_path / "one")
    one.policy_toml.write_text(f'learner = "{learner}"\n' + one.policy_toml.read_text())
    other = copy(one, tmp_path / "other")
    quiet(one, 100)
    for last in range(5, 101, 5):  # a life of the proxy every five steps
        proxy = desk(other)
        proxy.turn()

        def wait(turn: Callable[[], None] = proxy.turn) -> bool:
            turn()
            return True

        DryTrainer(other, wait).train(last) if last % 10 == 0 else None
        proxy.turn()
        proxy.close()
    assert other.plan.read_bytes() == one.plan.read_bytes()
