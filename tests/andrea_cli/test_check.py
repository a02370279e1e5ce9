from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from andrea_cli import check
from andrea_rundir import config
from andrea_rundir.events import read, read_back
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_rundir.policy import load
from andrea_service import identity
from harness import make_run, start, until
from harness.commands import Andrea, snapshot
from harness.waiting import last_step


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    changes = {"optimizer": {"max_steps": 400}, "checkpoint": {"every": 20}, "probe": {"every": 40}}
    return make_run(tmp_path_factory.mktemp("check") / "run", changes=changes)


def test_it_foretells_what_the_run_then_does_and_leaves_it_alone(andrea: Andrea, run: RunDir) -> None:
    before = snapshot(run.root)
    done = andrea("check", run.root, "--seconds", 1, "--json")
    assert done.code == 0, done.err
    assert snapshot(run.root) == before
    found = done.json
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    began, ended = (next(events)["time"] for events in (read(run.events), read_back(run.events)))
    took = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    # A machine that does other things too cannot time it closely: benchmarks/foretold.py does, on a quiet one.
    assert found["seconds"]["total"] / 4 < took < found["seconds"]["total"] * 4
    sizes = [path.stat().st_size for path in run.checkpoints().values()]
    assert found["disk"]["kept"] == pytest.approx(sum(sizes), rel=0.1)
    assert found["disk"]["checkpoint"] == sizes[0]
    history = sum(path.stat().st_size for path in run.events.iterdir())
    assert found["disk"]["history"] == pytest.approx(history, rel=0.2)
    cursors = next(event["cursors"] for event in reversed(list(read(run.events))) if event["event"] == "step")
    pulls = {arm: epochs * windows(run, arm) for arm, epochs in found["epochs"].items()}
    assert pulls == pytest.approx(cursors, abs=2)
    assert found["steps_per_second"] * found["seconds"]["total"] == pytest.approx(400, rel=0.1)
    assert found["memory"] > 50e6 and found["cuda"]["usable"] in (True, False)


def windows(run: RunDir, arm: str) -> int:
    from andrea_corpus.prepare import opened

    return opened(run, run.policy_toml.read_text())[arm].n_windows(config.load(run.run_toml).shape.context)


def test_people_get_lines(andrea: Andrea, run: RunDir) -> None:
    left = run.root / ".check.12345.tmp"  # by one that was killed
    left.mkdir()
    (left / "step_000000.bin").write_bytes(b"x")
    done = andrea("check", run.root, "--seconds", 0.1)
    assert done.code == 0 and not left.exists()
    said = [line.split()[0] for line in done.out.splitlines()]
    assert said[:8] == ["device", "cuda", "speed", "time", "memory", "disk", "writes", "reach"]
    assert said.count("epochs") == 2 and said[-1] == "tried"
    assert "for 0 steps" in done.out  # the run is finished


def test_ctrl_c_leaves_nothing(run: RunDir) -> None:
    before = snapshot(run.root)
    command = [sys.executable, "-m", "andrea_cli.main", "check", str(run.root), "--seconds", "600"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    until("the trial's first step", lambda: any(map(stepped, run.root.glob(".check.*.tmp"))))
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate()
    assert child.returncode == 130 and b"Traceback" not in said
    assert snapshot(run.root) == before


def stepped(scratch: Path) -> bool:
    return last_step(RunDir(scratch)) > 0


def test_a_run_that_trains_is_refused(andrea: Andrea, run: RunDir) -> None:
    with Lock.acquire(run.train_lock, identity.me("0" * 32)):
        done = andrea("check", run.root)
    assert done.code == 1 and "cannot be tried beside itself" in done.err


def test_faults_of_the_trial_come_through(andrea: Andrea, tmp_path: Path) -> None:
    broken = make_run(tmp_path / "run")
    shard = next(path for path in broken.data.iterdir() if path.name.endswith(".train.bin"))
    shard.write_bytes(shard.read_bytes()[:-2])
    before = snapshot(broken.root)
    done = andrea("check", broken.root, "--json")
    assert done.code == 78 and "missing or damaged" in done.json["error"]["what"]
    assert shard.name in done.json["error"]["where"]
    assert snapshot(broken.root) == before
    broken.run_toml.write_text(broken.run_toml.read_text().replace('device = "cpu"', 'device = "cuda:0"'))
    done = andrea("check", broken.root)
    assert done.code in (69, 78) and ("CUDA is not usable" in done.err or done.code == 78)


def test_arms_that_are_too_small_for_a_step(andrea: Andrea, tmp_path: Path) -> None:
    small = tmp_path / "small.txt"
    small.write_text("hold on to the line " * 70)
    run = make_run(
        tmp_path / "run", changes={"optimizer": {"batch_size": 64}}, arms={"small": small}, rules="max_epochs = 1.0\n"
    )
    done = andrea("check", run.root)
    assert done.code == 1 and "no step could be trained" in done.err


def test_what_an_owner_should_know_is_said(run: RunDir) -> None:
    settings, rules = config.load(run.run_toml), load(run.policy_toml)
    found: dict[str, Any] = {
        "steps_per_second": 50.0,
        "measured": {"save_seconds": 3.0},
        "seconds": {"steps": 100.0, "checkpoints": 20.0, "probes": 5.0, "total": 125.0},
        "disk": {"a_day": 5e12, "peak": 2e12, "history": 0.0, "free": 1e12},
        "done": 0,
        "memory": 95,
        "memory_total": 100,
        "card_memory": None,
        "card_total": None,
        "epochs": {"prose": 12.0, "sums": 1.0},
        "device": "cpu",
        "cuda": {"usable": True},
    }
    said = "\n".join(check.warnings(found, settings, rules))
    named = ("5 TB a day", "every = 100", "too small by 1 TB", "longer than the steps", "20% of the time", "95%")
    for part in (*named, "arm prose", "pinned to the CPU"):
        assert part in said
    assert "arm sums" not in said
    calm = found | {
        "disk": {"a_day": 1e9, "peak": 1e9, "history": 0.0, "free": 1e12},
        "seconds": {"steps": 100.0, "checkpoints": 2.0, "probes": 1.0, "total": 103.0},
        "measured": {"save_seconds": 0.1},
        "memory": 10,
        "epochs": {"prose": 1.0, "sums": 1.0},
        "cuda": {"usable": False},
    }
    assert check.warnings(calm, settings, rules) == []
