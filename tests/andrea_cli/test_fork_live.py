"""Forks with the real processes: branches that repeat their parent, others that do not, and a parent at work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from andrea_cli.main import main
from andrea_rundir import digests, inspection
from andrea_rundir.entries import read
from andrea_rundir.events import read as read_events
from andrea_rundir.names import RunDir
from harness import Trainer, entries, sidecar_diff, start, start_proxy, twin_diff, until
from harness.commands import Andrea, snapshot

LAST, CADENCE = 60, 10
PATIENT = {"optimizer": {"max_steps": LAST}, "checkpoint": {"every": CADENCE}, "run": {"plan_wait": 600.0}}

Fresh = Callable[..., RunDir]


def train(run: RunDir, *options: str) -> None:
    with start(run, *options) as trainer:
        assert trainer.wait() == 0, trainer.said()


def recorded(*runs: RunDir, step: int = LAST) -> Callable[[], bool]:
    return lambda: all(max((entry["step"] for entry in read(run.loss)), default=0) >= step for run in runs)


def finish(*runs: RunDir) -> None:
    """All beside each other, each with its proxy."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(start_proxy(run)) for run in runs]
        trainers: list[Trainer] = [stack.enter_context(start(run)) for run in runs]
        for trainer in trainers:
            assert trainer.wait() == 0, trainer.said()
        until("all is recorded", recorded(*runs))
        until("pivots are finished", lambda: not any(run.policy_pending.exists() for run in runs))
        for proxy in proxies:
            assert proxy.stop() == 0, proxy.said()


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, fresh: Fresh) -> RunDir:
    """Policy A to the end."""
    run = fresh(tmp_path_factory.mktemp("straight") / "run", PATIENT)
    finish(run)
    return run


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, rules: dict[str, str], fresh: Fresh) -> RunDir:
    """Stopped at 25; policy B after step 40."""
    run = fresh(tmp_path_factory.mktemp("parent") / "run", PATIENT)
    with start_proxy(run) as proxy:
        train(run, "--until-step", "25")
        until(
            "all is recorded and planned", lambda: recorded(run, step=25)() and run.plan.read_bytes().count(b"\n") > 3
        )
        run.policy_next.write_text(rules["B"])
        until("it is claimed", run.policy_pending.exists)
        assert proxy.stop() == 0, proxy.said()
    finish(run)
    assert {entry["policy"].partition("-")[0] for entry in read(run.loss)} == {"0", "40"}
    return run


def made(*arguments: object) -> RunDir:
    assert main(["fork", *map(str, arguments)]) == 0
    return RunDir(Path(str(arguments[1])))


def test_two_branches_from_before_a_pivot_side_by_side(parent: RunDir, straight: RunDir, tmp_path: Path) -> None:
    """One from inside a round, one from the very step after which the pivot took effect."""
    before = snapshot(parent.root)
    early, late = (made(parent.root, tmp_path / f"at{step}", "--step", step) for step in (25, 40))
    finish(early, late)
    for branch in (early, late):
        assert twin_diff(branch, straight, LAST, cadence=CADENCE) == []
        assert sidecar_diff(branch, straight) == []
        assert main(["rebuild-state", str(branch.root)]) == main(["verify", str(branch.root)]) == 0
        warnings = [e for e in read_events(branch.events) if e["event"] == "warning"]
        assert warnings == []
    assert snapshot(parent.root) == before
    assert parent.checkpoint(50).read_bytes() != straight.checkpoint(50).read_bytes()


def test_a_policy_of_its_own_is_a_pivot_right_there(parent: RunDir, rules: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(rules["B"])
    branch = made(parent.root, tmp_path / "new", "--step", 40, "--policy", tmp_path / "policy.toml")
    finish(branch)
    assert twin_diff(branch, parent, LAST, cadence=CADENCE) == []
    assert entries(branch) == entries(parent)
    assert branch.archived(40).joinpath("policy.toml").read_text() == rules["A"]


def test_another_learning_rate_diverges(parent: RunDir, tmp_path: Path) -> None:
    branch = made(parent.root, tmp_path / "new", "--step", 20, "--set", "optimizer.lr=1e-3", "--set", "run.plan_wait=0")
    train(branch, "--until-step", "30")
    assert branch.checkpoint(20).read_bytes() == parent.checkpoint(20).read_bytes()
    assert branch.checkpoint(30).read_bytes() != parent.checkpoint(30).read_bytes()
    changed = [e["detail"] for e in read_events(branch.events) if e.get("what") == "changed since the last start"]
    assert changed == [f"the bits may differ: {what}" for what in CHANGED]


CHANGED = ("run.plan_wait was 600.0, is 0.0", "optimizer.lr was 0.003, is 0.001")


def test_beside_a_parent_that_trains_and_prunes(fresh: Fresh, tmp_path: Path, andrea: Andrea) -> None:
    """Whatever it is asked for: a whole branch, or a word about what there is."""
    changes = {"optimizer": {"max_steps": 100_000}, "checkpoint": {"every": 10, "keep_last": 2, "keep_every": 100_000}}
    run = fresh(tmp_path / "run", changes)
    codes = []
    slowly: dict[str, object] = {"at": "andrea_train.loop:Loop._edge", "call": 1, "times": 0, "do": "SLEEP"}
    with start(run, hurt=[{**slowly, "seconds": 0.03}]) as trainer:
        until("something was pruned", lambda: 10 not in run.checkpoints() and run.checkpoint(30).exists())
        for number in range(12):
            step = list(run.checkpoints())[number % 2 - 2]
            done = andrea("fork", run.root, tmp_path / f"new{number}", "--step", step)
            codes.append(done.code)
            if done.code:
                assert done.code == 1 and "the nearest are" in done.err, done.err
                continue
            new = RunDir(tmp_path / f"new{number}")
            facts = inspection.inspect(new.checkpoint(step))
            assert facts.problem is None and digests.read(new.sums) == {new.checkpoint(step).name: facts.digest}
            seen = [event["step"] for event in read_events(new.events) if event["event"] in ("step", "snapshot")]
            assert max(seen) == step and seen.count(step) == 2
        assert trainer.stop() == 0, trainer.said()
    assert codes.count(0) >= 6
