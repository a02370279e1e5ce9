"""The feed against plans of every kind: what it takes, what it passes over, and what it does without one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from andrea_corpus.order import window_of
from andrea_rundir import config, planfile
from andrea_rundir.events import read
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.plan import SHARE_UNIT
from andrea_rundir.planfile import Line, PlanFile
from andrea_train.larder import Larder
from harness.dry import DryTrainer, desk

Make = Callable[..., RunDir]


@pytest.fixture(scope="module")
def planned(make: Make) -> RunDir:
    """Two rounds of ten steps are planned, nothing is trained."""
    run = make("planned", {"optimizer": {"max_steps": 200}})
    proxy = desk(run)
    proxy.turn()
    proxy.close()
    return run


@pytest.fixture
def run(planned: RunDir, tmp_path: Path) -> RunDir:
    return RunDir(Path(shutil.copytree(planned.root, tmp_path / "run")))


def lines(run: RunDir) -> list[Line]:
    return list(planfile.read(run.plan))


def rewrite(run: RunDir, new: list[Line]) -> None:
    run.plan.write_bytes(b"".join(map(planfile.encode, new)))


def fell_back(run: RunDir) -> list[int]:
    return [event["first"] for event in read(run.events) if event["event"] == "fallback"]


def impatient(run: RunDir) -> DryTrainer:
    return DryTrainer(run, lambda: False)


def test_lines_that_fit_are_taken_and_then_there_is_none(run: RunDir) -> None:
    trainer = impatient(run)
    assert trainer.train(25) and fell_back(run) == [21]
    assert trainer.feed.round is not None and trainer.feed.round.shares == lines(run)[1].plan.shares


def test_a_batch_is_the_windows_its_cursors_name_whether_prepared_ahead_or_not(run: RunDir) -> None:
    settings, feed = config.load(run.run_toml), impatient(run).feed
    for step in range(1, 26):
        shards, windows, before = feed.diet.shards, feed.diet.regime.windows, dict(feed.cursors)
        batch = feed.batch(step)
        expected = [
            shards[arm].window(
                window_of(settings.run.seed, shards[arm].fingerprint, before[arm] + i, windows[arm]),
                settings.shape.context,
            )
            for arm, pulls in batch.pulls.items()
            for i in range(pulls)
        ]
        np.testing.assert_array_equal(batch.windows, expected)
        after = dict(feed.cursors)
        if step % 2:
            feed.prepare()
        assert feed.cursors == after == {arm: count + batch.pulls.get(arm, 0) for arm, count in before.items()}


def test_on_a_resume_inside_a_round_the_line_is_gone_on_from(run: RunDir) -> None:
    """Even where no snapshot tells of it: the line's starts, advanced by its own counts, are the trainer's."""
    impatient(run).train(14)
    shutil.copy(run.checkpoint(10), run.checkpoint(14))
    whole = impatient(run)
    assert whole.step == 14
    whole.train(20)
    assert fell_back(run) == [] and whole.feed.round == lines(run)[1].plan
    assert whole.feed.cursors == {"prose": 40, "sums": 40}


@pytest.mark.parametrize("name", ["cursors", "credits", "arms", "steps", "first", "batch"])
def test_a_line_that_does_not_fit_is_passed_over(name: str, run: RunDir) -> None:
    first, second = lines(run)
    plan = second.plan
    assert plan.steps is not None
    changed = {
        "cursors": replace(plan, cursors={"prose": 21, "sums": 19}),
        "credits": replace(plan, credits={"prose": 5, "sums": -5}),
        "arms": replace(plan, arms={**plan.arms, "sums": "f" * 16}),
        "steps": replace(plan, steps=[{"prose": 4}, *plan.steps[1:]]),
        "first": replace(plan, first=12, steps=plan.steps[1:]),
        "batch": replace(plan, steps=[{"prose": 3, "sums": 3}] * 10),
    }[name]
    rewrite(run, [first, replace(second, plan=changed)])
    trainer = impatient(run)
    trainer.train(15)
    assert fell_back(run) == [11]


def test_of_two_lines_that_fit_the_newest_is_taken_and_one_that_comes_while_it_waits(run: RunDir) -> None:
    first, second = lines(run)
    other = replace(second.plan, shares={"prose": SHARE_UNIT, "sums": 0}, steps=[{"prose": 4}] * 10)
    rewrite(run, [first])
    naps = [0]

    def wait() -> bool:
        naps[0] += 1
        if naps[0] == 3:
            PlanFile(run.plan).append([second, replace(second, plan=other)])
        return True

    trainer = DryTrainer(run, wait)
    trainer.train(20)
    assert naps[0] == 3 and trainer.feed.cursors == {"prose": 60, "sums": 20}


def test_what_it_recorded_itself_goes_before_any_line(run: RunDir) -> None:
    first, second = lines(run)
    rewrite(run, [first])
    impatient(run).train(12)
    PlanFile(run.plan).append([second])
    again = impatient(run)
    again.train(20)
    assert fell_back(run) == [11] and again.feed.round is not None and again.feed.round.steps is None


def test_a_policy_is_only_gone_over_to_at_its_first_round(run: RunDir) -> None:
    """A line of a policy that began while the trainer had fallen back is void, equal cursors or not."""
    first, second = lines(run)
    policy = "10-0123456789ab"
    begins = Line(replace(second.plan, policy=policy), policy_text=first.policy_text)
    late = replace(second.plan, policy=policy, round=2, first=21, last=30, cursors={"prose": 40, "sums": 40})
    rewrite(run, [first, begins])
    trainer = impatient(run)
    trainer.train(20)
    assert trainer.feed.diet.regime.id == policy and fell_back(run) == []
    rewrite(run, [first, second, Line(late, policy_text=first.policy_text)])
    shutil.rmtree(run.events)
    for step in (10, 20):
        run.checkpoint(step).unlink()
    trainer = impatient(run)
    trainer.train(25)
    assert trainer.feed.diet.regime.id == first.plan.policy and fell_back(run) == [21]


def test_a_plan_whose_shard_is_missing_is_told_with_arm_and_fingerprint(run: RunDir) -> None:
    first, second = lines(run)
    arms = {**second.plan.arms, "sums": "f" * 16}
    plan = replace(second.plan, policy="10-0123456789ab", arms=arms, cursors={"prose": 20, "sums": 0})
    rewrite(run, [first, Line(plan, policy_text=first.policy_text)])
    trainer = impatient(run)
    with pytest.raises(BadConfig) as fault:
        trainer.train(20)
    assert trainer.step == 10 and trainer.feed.diet.regime.id == first.plan.policy
    for words in ("sums", "f" * 16, "andrea prepare RUN"):
        assert words in str(fault.value)


def test_once_there_is_a_plan_its_policy_is_what_counts(run: RunDir) -> None:
    """Whatever `policy.toml` and `sources.json` have become."""
    run.policy_toml.write_text("[arms.other]\npath = '/nowhere'\n")
    (run.data / "sources.json").write_text("{}")
    trainer = impatient(run)
    trainer.train(25)
    assert trainer.feed.diet.regime.id == lines(run)[0].plan.policy


def test_without_a_plan_the_policy_of_the_first_start_counts(run: RunDir) -> None:
    run.plan.unlink()
    text = run.policy_toml.read_text()
    run.policy_toml.write_text(text + "# edited before any step was taken\n")
    trainer = impatient(run)
    trainer.train(15)
    edited = trainer.feed.diet.regime.id
    run.policy_toml.write_text("[arms.other]\npath = '/nowhere'\n")
    again = impatient(run)
    again.train(30)
    assert again.feed.diet.regime.id == edited and "edited" in again.feed.diet.regime.text
    starts = [event["policy"]["id"] for event in read(run.events) if event["event"] == "start"]
    assert starts == [edited, edited]


def test_a_policy_that_is_nowhere_is_told(run: RunDir) -> None:
    impatient(run).train(15)
    run.plan.unlink()
    tape = next(run.events.iterdir())
    events = [json.loads(text) for text in tape.read_text().splitlines()]
    for event in events:
        event.pop("policy", None) if event["event"] == "start" else None
    tape.write_text("".join(json.dumps(event) + "\n" for event in events))
    run.policy_toml.write_text(run.policy_toml.read_text() + "# edited\n")
    with pytest.raises(BadConfig, match="nowhere"):
        impatient(run)


def test_shards_that_stay_in_use_are_read_through_once(run: RunDir) -> None:
    heard = [0]

    def hear() -> None:
        heard[0] += 1

    larder = Larder(run, context=32, round_steps=10, hear=hear)
    diet = larder.first(None, None)
    count = heard[0]
    assert count > 0 and larder.open(diet.recipe).shards["prose"] is diet.shards["prose"] and heard[0] == count
