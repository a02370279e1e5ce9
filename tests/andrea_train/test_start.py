"""Starting: the lock, stale pidfiles, files of the format made elsewhere, and what a start records."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from andrea_rundir.config import load
from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from andrea_service.presence import look
from harness import start, start_proxy, until, wait_checkpoint, wait_step

Make = Callable[..., RunDir]

LONG = {"optimizer": {"max_steps": 100_000}, "checkpoint": {"every": 1000}, "probe": {"every": 1000}}


def contents(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.root.iterdir() if path.is_file()}


def test_a_second_trainer_exits_75_and_touches_nothing(make: Make) -> None:
    run = make("second", LONG)
    with start(run) as first:
        wait_step(run, 3)
        wait_checkpoint(run, 0)
        first.signal(signal.SIGSTOP)
        until("it stands still", first.frozen)
        before, segments = contents(run), sorted(run.events.iterdir())
        with start(run) as second:
            assert second.wait() == 75, second.said()
        assert contents(run) == before
        assert sorted(run.events.iterdir()) == segments
        assert str(first.pid) in second.said()
        first.signal(signal.SIGCONT)
        assert first.stop() == 0


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing torch takes for ever."""
    (tmp_path / "torch.py").write_text("import time\nwhile True:\n    time.sleep(1)\n")
    return {"PYTHONPATH": str(tmp_path)}


def test_the_run_is_held_before_torch_is_imported(make: Make, no_torch: dict[str, str]) -> None:
    """Seconds pass until then: a second trainer is refused meanwhile, and status does not say that nothing runs."""
    run = make("held", LONG)
    with start(run, env=no_torch) as first:
        until("it is held", lambda: look(run).state == "starting")
        with start(run, env=no_torch) as second:
            assert second.wait() == 75 and str(first.pid) in second.said()


def test_a_run_keeps_its_seed(make: Make) -> None:
    run = make("seed", {"optimizer": {"max_steps": 20}})
    with start(run, "--until-step", "10") as trainer:
        assert trainer.wait() == 0, trainer.said()
    seed = load(run.run_toml).run.seed
    run.run_toml.write_text(run.run_toml.read_text().replace(f"seed = {seed}", "seed = 7"))
    for refused in (start(run), start_proxy(run)):
        with refused:
            assert refused.wait() == 78 and "a run keeps its seed" in refused.said(), refused.said()
    assert max(run.checkpoints()) == 10
    run.run_toml.write_text(run.run_toml.read_text().replace("seed = 7", f"seed = {seed}"))
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()


def test_the_first_checkpoint_extends_the_start_as_long_as_it_moves(make: Make, tmp_path: Path) -> None:
    """Six texts by a large model can take longer than a start may: time is bought while words come."""
    run = make("slow", {"optimizer": {"max_steps": 20}, "samples": {"tokens": 128}})
    crawl: dict[str, object] = {
        "at": "andrea_train.sampler:extend",
        "call": 1,
        "do": "SLEEP",
        "seconds": 0.25,
        "times": 0,
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        with start(run, hurt=[crawl], env={"NOTIFY_SOCKET": str(tmp_path / "notify")}):
            said: list[str] = []
            while not (said and said[-1].startswith("READY=1")):
                said.append(manager.recv(4096).decode())
    at = next(i for i, text in enumerate(said) if "untrained model" in text)
    assert sum(text.startswith("EXTEND") for text in said[at:]) >= 3, said


def test_a_stale_pidfile_of_another_program_is_no_obstacle_and_no_target(make: Make) -> None:
    run = make("stale", {"optimizer": {"max_steps": 10}})
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        run.train_pid.write_text(f"{bystander.pid}\n")
        with start(run) as trainer:
            assert trainer.wait() == 0, trainer.said()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_five_lines_of_numpy_read_our_file_and_write_one_we_resume(make: Make, tmp_path: Path) -> None:
    run = make("numpy", {"optimizer": {"max_steps": 20}})
    with start(run, "--until-step", "10") as trainer:
        assert trainer.wait() == 0

    # The five lines of docs/run-directory.md.
    raw = np.fromfile(run.checkpoint(10), dtype="<f4")
    step, n = raw[:2].view("<i4")
    w, m, v = raw[2:].reshape(3, n)
    assert (step, raw.nbytes) == (10, 8 + 12 * n)
    header = np.array([step, n], dtype="<i4")
    header.tofile(tmp_path / "again.bin")

    with (tmp_path / "again.bin").open("ab") as file:
        for part in (w, m, v):
            part.tofile(file)
    assert (tmp_path / "again.bin").read_bytes() == run.checkpoint(10).read_bytes()
    whole = make("numpy-whole", {"optimizer": {"max_steps": 20}})
    with start(whole) as trainer:
        assert trainer.wait() == 0
    run.checkpoint(10).unlink()
    (tmp_path / "again.bin").rename(run.checkpoint(10))
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    assert run.checkpoint(20).read_bytes() == whole.checkpoint(20).read_bytes()


def test_a_bare_file_without_history_starts_and_says_so(make: Make) -> None:
    donor, run = make("donor", {"optimizer": {"max_steps": 10}}), make("bare", {"optimizer": {"max_steps": 20}})
    with start(donor) as trainer:
        assert trainer.wait() == 0
    run.checkpoint(10).write_bytes(donor.checkpoint(10).read_bytes())
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    assert "data order starts afresh, an even split; the guard starts afresh" in trainer.said()
    assert "has no line in SHA256SUMS" in trainer.said()
    assert 20 in run.checkpoints()


def test_a_start_records_what_may_change_bits_and_warns_of_a_change(make: Make) -> None:
    run = make("facts", {"optimizer": {"max_steps": 20}})
    with start(run, "--until-step", "10") as trainer:
        assert trainer.wait() == 0
    run.run_toml.write_text(run.run_toml.read_text().replace("lr = 0.003 ", "lr = 0.004 ", 1))
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    first, second = (e for e in read(run.events) if e["event"] == "start")
    assert first["versions"]["torch"]
    assert first["threads"] == 1
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert second["config"]["optimizer"]["lr"] == 0.004
    [warning] = [e for e in read(run.events) if e.get("what") == "changed since the last start"]
    assert "0.003" in warning["detail"]


def test_data_exhausted_is_a_clean_end(make: Make, sources: dict[str, Path], tmp_path: Path) -> None:
    small = tmp_path / "small.txt"
    small.write_text(sources["prose"].read_text()[:4000])
    run = make("exhausted", {"optimizer": {"max_steps": 1000}}, arms={"small": small}, rules="max_epochs = 2.0\n")
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    end = list(read(run.events))[-1]
    assert (end["event"], end["reason"]) == ("stop", "data exhausted")
    assert [e["event"] for e in read(run.events) if e.get("step") == end["step"]].count("audit") == 1
    assert end["step"] in run.checkpoints()
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()


def test_data_exhausted_right_after_a_checkpoint_saves_and_looks_once(make: Make, tmp_path: Path) -> None:
    small = tmp_path / "small.txt"
    small.write_text("hold on to the line " * 70)
    run = make("edge", arms={"small": small}, rules="max_epochs = 1.0\n")
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    last = list(read(run.events))[-1]["step"]
    run = make("edge", {"checkpoint": {"every": last}}, arms={"small": small}, rules="max_epochs = 1.0\n")
    with start(run, hurt=[{"at": "andrea_train.saver:Saver._save", "call": 2, "do": "SLEEP", "seconds": 1}]) as trainer:
        assert trainer.wait() == 0, trainer.said()
    kinds = [e["event"] for e in read(run.events) if e.get("step") == last]
    assert [kinds.count(kind) for kind in ("snapshot", "checkpoint", "audit", "stop")] == [1, 1, 1, 1]


def test_errors_of_the_operator_have_no_traceback(make: Make) -> None:
    run = make("errors")
    with start(RunDir(run.root / "nowhere")) as trainer:
        assert trainer.wait() == 1
    assert "no run here" in trainer.said()
    run.run_toml.write_text(run.run_toml.read_text().replace("warmup_steps", "warm_up_steps"))
    with start(run) as trainer:
        assert trainer.wait() == 78
    assert "warmup_steps" in trainer.said()
    assert "Traceback" not in trainer.said()


def test_a_damaged_shard_is_named(make: Make) -> None:
    run = make("shard")
    [shard, *_] = sorted(run.data.glob("*.train.bin"))
    shard.write_bytes(shard.read_bytes()[:-2])
    with start(run) as trainer:
        assert trainer.wait() == 78
    assert "andrea prepare" in trainer.said()
    assert shard.name.split(".")[0] in trainer.said()
