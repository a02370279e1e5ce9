"""Forks in one process, thousands of steps a second: every place to branch off, every policy to go on with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea_cli.main import main
from andrea_rundir import config, digests
from andrea_rundir.entries import read
from andrea_rundir.names import RunDir
from harness import figures, sidecar_diff
from harness.commands import Andrea, snapshot
from harness.dry import DryTrainer, quiet
from harness.models import write_checkpoint
from harness.processes import TESTS

DRY = {"optimizer": {"max_steps": 90}, "checkpoint": {"every": 10}}

Fresh = Callable[..., RunDir]

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


def trained(run: RunDir, pivots: dict[int, str]) -> RunDir:
    """Trainer and proxy to the end, with these policies in force from these steps on; checkpoints that are valid."""

    def between(step: int) -> None:
        if text := pivots.get(step + 15):  # so much is planned when it is asked for
            run.policy_next.write_text(text)

    return valid(quiet(run, 90, also=between))


def valid(run: RunDir) -> RunDir:
    """The same with checkpoints that can be used."""
    for step, path in run.checkpoints().items():
        write_checkpoint(path, config.load(run.run_toml).shape, step=step)
    return run


@pytest.fixture(scope="module")
def dry(tmp_path_factory: pytest.TempPathFactory, rules: dict[str, str], fresh: Fresh) -> RunDir:
    """A at first, B after 20, C after 50."""
    return trained(fresh(tmp_path_factory.mktemp("dry") / "run", DRY), {20: rules["B"], 50: rules["C"]})


ON_ITS_OWN = [(step, "") for step in (0, 10, 20, 30, 50, 60)]
PIVOTED = [(0, "B"), (20, "B"), (20, "C"), (40, "A"), (40, "C"), (50, "A"), (50, "C"), (70, "A"), (70, "B")]


@pytest.mark.parametrize(("step", "name"), ON_ITS_OWN + PIVOTED)
def test_a_branch_is_what_the_run_would_have_been(
    step: int, name: str, dry: RunDir, rules: dict[str, str], fresh: Fresh, tmp_path: Path, andrea: Andrea
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
    twin = fresh(tmp_path / "twin", DRY, first=in_force if not step else "A")
    trained(twin, pivots | ({step: rules[name]} if name and step else {}))
    assert sidecar_diff(new, twin) == [] and figures(new) == figures(twin)
    assert {e["policy"] for e in read(new.loss) if e["step"] > step} == {done.json["policy"]} or not step
    assert andrea("rebuild-state", new.root, "--json").json["equal"]


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


def test_a_run_without_a_proxy_has_no_plan_to_bring(fresh: Fresh, tmp_path: Path, andrea: Andrea) -> None:
    """The branch falls back as its parent did, round for round."""
    run = fresh(tmp_path / "run", DRY)
    assert DryTrainer(run, lambda: False).train(90)
    valid(run)
    assert andrea("fork", run.root, tmp_path / "new", "--step", 20).code == 0
    new = RunDir(tmp_path / "new")
    assert not new.plan.exists() and not new.loss.exists()
    assert DryTrainer(new, lambda: False).train(90)
    assert figures(new) == figures(run)


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


def test_a_full_disk_and_another_one(dry: RunDir, mount: Callable[..., Path], andrea: Andrea) -> None:
    place = mount("tmpfs", "size=600k")  # room for a checkpoint of 504,584 bytes, not for the rest
    done = andrea("fork", dry.root, place / "new", "--step", 30)
    assert done.code == 1 and "No space left" in done.err and os.listdir(place) == []
    place = mount("tmpfs", "size=8m")
    assert andrea("fork", dry.root, place / "new", "--step", 30).code == 0
    shards = list((place / "new" / "data").glob("*.bin"))
    assert shards and all(path.stat().st_nlink == 1 for path in shards)
    assert all(path.read_bytes() == (dry.data / path.name).read_bytes() for path in shards)
