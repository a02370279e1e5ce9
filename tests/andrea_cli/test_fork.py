from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from andrea_cli.main import main
from andrea_corpus.prepare import prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir import checkpoint, config, digests, policy
from andrea_rundir.events import read as read_events
from andrea_rundir.lossfile import read
from andrea_rundir.names import RunDir
from harness import Trainer, entries, figures, make_run, sidecar_diff, start, start_proxy, texts, twin_diff, until
from harness.commands import Andrea, snapshot
from harness.dry import DryTrainer, quiet
from harness.models import write_checkpoint
from harness.processes import TESTS

LAST, CADENCE = 60, 10
PATIENT = {"optimizer": {"max_steps": LAST}, "checkpoint": {"every": CADENCE}, "run": {"plan_wait": 600.0}}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three arms of text."""
    folder = tmp_path_factory.mktemp("texts")
    third = folder / "third.txt"
    third.write_text("abc, abd, abe; what follows is not known yet\n" * 200)
    return {**texts(folder), "third": third}


@pytest.fixture(scope="module")
def rules(sources: dict[str, Path]) -> dict[str, str]:
    """Policies: A as runs begin, B renames an arm, drops one and adds one, C drops another and takes that one back."""
    paths = {name: str(path) for name, path in sources.items()}
    written = {
        "A": f'[arms.prose]\npath = "{paths["prose"]}"\n[arms.sums]\npath = "{paths["sums"]}"\n',
        "B": f'learner = "ucb1"\n[arms.novels]\npath = "{paths["prose"]}"\ncap = 0.75\n'
        f'[arms.third]\npath = "{paths["third"]}"\nfloor = 0.25\n',
        "C": f'[arms.sums]\npath = "{paths["sums"]}"\n[arms.third]\npath = "{paths["third"]}"\ncap = 0.5\n',
    }
    return {name: policy.dump(policy.parse(text, name, Path("/"))) for name, text in written.items()}


def fresh(folder: Path, rules: dict[str, str], changes: dict[str, dict[str, object]], first: str = "A") -> RunDir:
    """A run that begins with policy `first`, with the shards of all policies."""
    arms = {name: Path(str(arm.path)) for name, arm in policy.parse(rules[first], "", folder).arms.items()}
    run = make_run(folder, changes=changes, arms=arms)
    run.policy_toml.write_text(rules[first])
    for text in rules.values():
        prepare(run, policy.parse(text, "", folder), ByteTokenizer(), held_out=0.1, context=32)
    return run


# In one process, thousands of steps a second: every place to branch off, every policy to go on with.


DRY = {"optimizer": {"max_steps": 90}, "checkpoint": {"every": CADENCE}}


@pytest.fixture
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def trained(run: RunDir, pivots: dict[int, str]) -> RunDir:
    """Trainer and proxy to the end, with these policies in force from these steps on; checkpoints that are valid."""

    def between(step: int) -> None:
        if text := pivots.get(step + 15):  # so much is planned when it is asked for
            run.policy_next.write_text(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        quiet(run, 90, also=between)
    return valid(run)


def valid(run: RunDir) -> RunDir:
    """The same with checkpoints that can be used."""
    for step, path in run.checkpoints().items():
        write_checkpoint(path, config.load(run.run_toml).shape, step=step)
    return run


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory, rules: dict[str, str]) -> RunDir:
    """A at first, B after 20, C after 50."""
    return trained(fresh(tmp_path_factory.mktemp("dry") / "run", rules, DRY), {20: rules["B"], 50: rules["C"]})


ON_ITS_OWN = [(step, "") for step in (0, 10, 20, 30, 50, 60)]
PIVOTED = [(0, "B"), (20, "B"), (20, "C"), (40, "A"), (40, "C"), (50, "A"), (50, "C"), (70, "A"), (70, "B")]


@pytest.mark.usefixtures("no_disk")
@pytest.mark.parametrize(("step", "name"), ON_ITS_OWN + PIVOTED)
def test_a_branch_is_what_the_run_would_have_been(
    step: int, name: str, dry: RunDir, rules: dict[str, str], tmp_path: Path, andrea: Andrea
) -> None:
    """Pivots of the parent up to the step count, later ones do not, and another policy is a pivot right there."""
    before, file = snapshot(dry.root), tmp_path / "policy.toml"
    file.write_text(rules[name] if name else "")
    done = andrea("fork", dry.root, tmp_path / "new", "--step", step, *(["--policy", file] if name else []), "--json")
    assert done.code == 0, done.err
    assert snapshot(dry.root) == before
    new = RunDir(tmp_path / "new")
    in_force = name or ("A" if step <= 20 else "B" if step <= 50 else "C")
    assert list(new.checkpoints()) == [step] and new.policy_toml.read_text() == rules[in_force]
    trained(new, {})
    pivots = {at: text for at, text in {20: rules["B"], 50: rules["C"]}.items() if at < step}
    twin = fresh(tmp_path / "twin", rules, DRY, first=in_force if not step else "A")
    trained(twin, pivots | ({step: rules[name]} if name and step else {}))
    assert sidecar_diff(new, twin) == [] and figures(new) == figures(twin)
    assert {e["policy"] for e in read(new.loss) if e["step"] > step} == {done.json["policy"]} or not step
    assert andrea("rebuild-state", new.root, "--json").json["equal"]


@pytest.mark.usefixtures("no_disk")
def test_a_fork_of_a_fork_knows_where_it_comes_from(dry: RunDir, tmp_path: Path, andrea: Andrea) -> None:
    assert andrea("fork", dry.root, tmp_path / "one", "--step", 30).code == 0
    trained(RunDir(tmp_path / "one"), {})
    done = andrea("fork", tmp_path / "one", tmp_path / "two", "--step", 50, "--set", "optimizer.lr=1e-3")
    assert done.code == 0 and "optimizer.lr: 0.003 -> 0.001" in done.out
    one, two = (config.load(tmp_path / name / "run.toml") for name in ("one", "two"))
    assert two.optimizer.lr == 0.001 and two.run.name == "two" and len({one.run.id, two.run.id, "0" * 32}) == 3
    lineage = json.loads((tmp_path / "two" / "lineage.json").read_bytes())
    assert (lineage["id"], lineage["name"], lineage["step"]) == (one.run.id, "one", 50)
    assert lineage["changed"] == {"optimizer.lr": [0.003, 0.001]}
    assert (lineage["earlier"]["id"], lineage["earlier"]["step"]) == ("0" * 32, 30)
    assert lineage["digest"] == digests.read(RunDir(tmp_path / "two").sums)["step_000050.bin"]
    assert lineage["earlier"]["earlier"] is None


@pytest.mark.usefixtures("no_disk")
def test_a_run_without_a_proxy_has_no_plan_to_bring(rules: dict[str, str], tmp_path: Path, andrea: Andrea) -> None:
    """The branch falls back as its parent did, round for round."""
    run = fresh(tmp_path / "run", rules, DRY)
    assert DryTrainer(run, lambda: False).train(90)
    valid(run)
    assert andrea("fork", run.root, tmp_path / "new", "--step", 20).code == 0
    new = RunDir(tmp_path / "new")
    assert not new.plan.exists() and not new.loss.exists()
    assert DryTrainer(new, lambda: False).train(90)
    assert figures(new) == figures(run)


@pytest.mark.usefixtures("no_disk")
def test_kept_and_archived_checkpoints_will_do(dry: RunDir, tmp_path: Path, andrea: Andrea) -> None:
    run = RunDir(Path(shutil.copytree(dry.root, tmp_path / "run")))
    assert andrea("keep", run.root, 30).code == 0
    for step in (30, 50):
        run.checkpoint(step).unlink()
    for step, place in ((30, run.kept), (50, run.archived(50))):
        done = andrea("fork", run.root, tmp_path / f"new{step}", "--step", step, "--json")
        assert done.code == 0 and Path(done.json["checkpoint"]).parent == place
    done = andrea("fork", run.root, tmp_path / "none", "--step", 45)
    assert done.code == 1 and "found:    the nearest are 30, 40, 50" in done.err


@pytest.mark.usefixtures("no_disk")
def test_what_cannot_be_made_is_refused(dry: RunDir, rules: dict[str, str], tmp_path: Path, andrea: Andrea) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("x")
    file = tmp_path / "policy.toml"
    file.write_text(rules["B"].replace("floor = 0.0", "floor = 0.9", 1))
    gone = tmp_path / "gone.toml"
    gone.write_text(rules["B"].replace("third.txt", "fourth.txt"))
    run = RunDir(Path(shutil.copytree(dry.root, tmp_path / "run")))
    damaged = run.checkpoint(30).read_bytes()
    run.checkpoint(30).write_bytes(damaged[:-4] + b"\0\0\x80\xbf")
    digests.record(run.sums, "step_000040.bin", "ab" * 32)
    shutil.copy(run.checkpoint(50), run.checkpoint(55))
    before = snapshot(tmp_path)

    def refused(code: int, *words: str, new: str = "new", step: int = 20, more: tuple[object, ...] = ()) -> None:
        done = andrea("fork", run.root, tmp_path / new, "--step", step, *more)
        assert done.code == code and all(word in done.err for word in words), done.err
        assert snapshot(tmp_path) == before

    refused(1, "is not empty", "file", new="here")
    refused(1, "no checkpoint of step 7", "the nearest are 0, 10, 20", step=7)
    refused(1, "not a usable checkpoint", "v[42047] is -1.0", step=30)
    refused(1, "not a usable checkpoint", "SHA-256 " + "ab" * 32, step=40)
    refused(1, "not a usable checkpoint", "says step 50", step=55)
    refused(78, "end of the run", "max_steps", step=90)
    refused(78, "did you mean lr?", more=("--set", "optimizer.lrr=1"))
    refused(78, "the weights have this shape", more=("--set", "model.n_heads=4"))
    refused(78, "rounds of 15 steps", more=("--set", "checkpoint.every=15", "--set", "probe.every=15"))
    refused(78, "the floor of novels is above its cap", more=("--policy", file))
    refused(78, "fourth.txt", more=("--policy", gone))
    assert andrea("fork", tmp_path / "nowhere", tmp_path / "new", "--step", 1).code == 1


@pytest.mark.usefixtures("no_disk")
def test_a_dry_run_makes_nothing(dry: RunDir, rules: dict[str, str], tmp_path: Path, andrea: Andrea) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(rules["B"])
    before = snapshot(tmp_path)
    wish = ("fork", dry.root, tmp_path / "new", "--step", 30, "--policy", file, "--json")
    said = andrea(*wish, "--dry-run").json
    assert said["dry_run"] and snapshot(tmp_path) == before
    assert "would make" in andrea(*wish[:-1], "--dry-run").out
    made = andrea(*wish).json
    assert {**made, "id": 0, "dry_run": 0} == {**said, "id": 0, "dry_run": 0}


def test_killed_at_every_write_it_leaves_nothing(dry: RunDir, rules: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(rules["B"])
    place = tmp_path / "place"
    new = place / "new"
    arguments = ["fork", str(dry.root), str(new), "--step", "30", "--policy", str(tmp_path / "policy.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "harness.killed", str(dry.root), str(new), "andrea_cli.main", *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40
    assert os.listdir(place) == ["new"]
    assert main([*arguments[:2], str(place / "whole"), *arguments[3:]]) == 0
    mine, whole = (snapshot(place / name) for name in ("new", "whole"))
    assert [name for name in whole if mine.get(name) != whole[name]] == ["run.toml"]
    assert mine.keys() == whole.keys()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A file system of its own, of a size."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 and "CI" not in os.environ:
        pytest.skip("mounting a small tmpfs needs root")

    def mounted(size: str) -> Path:
        option = "remount," if place.is_mount() else ""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"{option}size={size}", "tmpfs", place], check=True)
        return place

    yield mounted
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_and_another_one(dry: RunDir, small_disk: Callable[[str], Path], andrea: Andrea) -> None:
    place = small_disk("600k")  # room for a checkpoint of 504,584 bytes, not for the rest
    done = andrea("fork", dry.root, place / "new", "--step", 30)
    assert done.code == 1 and "No space left" in done.err and os.listdir(place) == []
    small_disk("8m")
    assert andrea("fork", dry.root, place / "new", "--step", 30).code == 0
    shards = list((place / "new" / "data").glob("*.bin"))
    assert shards and all(path.stat().st_nlink == 1 for path in shards)
    assert all(path.read_bytes() == (dry.data / path.name).read_bytes() for path in shards)


# The real processes.


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
def straight(tmp_path_factory: pytest.TempPathFactory, rules: dict[str, str]) -> RunDir:
    """Policy A to the end."""
    run = fresh(tmp_path_factory.mktemp("straight") / "run", rules, PATIENT)
    finish(run)
    return run


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, rules: dict[str, str]) -> RunDir:
    """Stopped at 25; policy B after step 40."""
    run = fresh(tmp_path_factory.mktemp("parent") / "run", rules, PATIENT)
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
        assert main(["rebuild-state", str(branch.root)]) == 0
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


def test_beside_a_parent_that_trains_and_prunes(rules: dict[str, str], tmp_path: Path, andrea: Andrea) -> None:
    """Whatever it is asked for: a whole branch, or a word about what there is."""
    changes = {"optimizer": {"max_steps": 100_000}, "checkpoint": {"every": 10, "keep_last": 2, "keep_every": 100_000}}
    run = fresh(tmp_path / "run", rules, changes)
    codes = []
    with start(run) as trainer:
        until("something was pruned", lambda: 10 not in run.checkpoints() and run.checkpoint(30).exists())
        for number in range(12):
            step = list(run.checkpoints())[number % 2 - 2]
            done = andrea("fork", run.root, tmp_path / f"new{number}", "--step", step)
            codes.append(done.code)
            if done.code:
                assert done.code == 1 and "the nearest are" in done.err, done.err
                continue
            new = RunDir(tmp_path / f"new{number}")
            facts = checkpoint.inspect(new.checkpoint(step))
            assert facts.problem is None and digests.read(new.sums) == {new.checkpoint(step).name: facts.digest}
            seen = [event["step"] for event in read_events(new.events) if event["event"] in ("step", "snapshot")]
            assert max(seen) == step and seen.count(step) == 2
        assert trainer.stop() == 0, trainer.said()
    assert codes.count(0) >= 6
