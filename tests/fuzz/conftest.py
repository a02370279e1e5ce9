"""One small finished run that every test hurts a copy of."""

from __future__ import annotations

import hashlib
import shutil

import numpy as np
import pytest

from andrea_cli import lineage
from andrea_rundir import config, digests, door
from andrea_rundir.names import RunDir
from harness.dry import quiet
from harness.runs import make_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, no_waiting_for_the_disk: None) -> RunDir:
    """A run of 40 steps with all its sidecars, sound checkpoints, a lineage and a pidfile. Not to be changed."""
    run = make_run(tmp_path_factory.mktemp("good") / "run", changes={"optimizer": {"max_steps": 1000}})
    quiet(run, 40)
    n_params = config.load(run.run_toml).shape.n_params
    for step, path in run.checkpoints().items():
        values = np.random.default_rng(step).random(3 * n_params, np.float32)
        path.write_bytes(np.array([step, n_params], "<i4").tobytes() + values.tobytes())
        digests.record(run.sums, path.name, hashlib.sha256(path.read_bytes()).hexdigest())
    lineage.write(run, "init --from", file="x.bin", step=0, n_params=n_params, digest="ab" * 32, earlier=None)
    door.open_at(run, "http://127.0.0.1:1/")
    run.train_pid.write_text("1234\n")
    run.train_lock.write_text('{"pid":1234,"start_ticks":1,"boot_id":"x","host":"here","since":"2026-01-01"}\n')
    return run


@pytest.fixture(scope="module")
def run(trained: RunDir, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A copy, to be hurt; whoever hurts a file puts the good one back."""
    root = tmp_path_factory.mktemp("hurt") / "run"
    shutil.copytree(trained.root, root)
    return RunDir(root)
