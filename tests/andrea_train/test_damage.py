"""Damaged checkpoints: named, set aside, never deleted; the run goes on from the one before, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from harness import start

Make = Callable[..., RunDir]
Damage = Callable[[Path], None]

SHORT = {"optimizer": {"max_steps": 30}}


@pytest.fixture(scope="module")
def finished(make: Make) -> RunDir:
    """A run of 30 steps, its checkpoints at 0, 10, 20 and 30."""
    run = make("finished", SHORT)
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    return run


@pytest.fixture
def run(finished: RunDir, tmp_path: Path) -> RunDir:
    """A copy of it, free to be damaged."""
    return RunDir(Path(shutil.copytree(finished.root, tmp_path / "run")))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def wrong_step(path: Path) -> None:
    write_at(path, 0, np.int32(29).tobytes())


def wrong_n(path: Path) -> None:
    write_at(path, 4, np.int32(7).tobytes())


def drop_digest_line(path: Path) -> None:
    sums = path.parent / "SHA256SUMS"
    sums.write_text("".join(line + "\n" for line in sums.read_text().splitlines() if path.name not in line))


def not_a_number(path: Path) -> None:
    """With a digest that agrees: only the look at the values can tell."""
    write_at(path, 8 + 4 * 1000, np.float32(np.nan).tobytes())
    drop_digest_line(path)


def negative_v(path: Path) -> None:
    write_at(path, path.stat().st_size - 4, np.float32(-1).tobytes())
    drop_digest_line(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def flip(share: float) -> Damage:
    def flipped(path: Path) -> None:
        offset = int(share * (path.stat().st_size - 1))
        byte = path.read_bytes()[offset]
        write_at(path, offset, bytes([byte ^ 0x10]))

    flipped.__name__ = f"a bit flipped at {share:.0%}"
    return flipped


DAMAGES: list[Damage] = [truncate, empty, wrong_step, wrong_n, not_a_number, negative_v, folder, dangling]
DAMAGES += [flip(share) for share in (0.0, 0.33, 0.71, 1.0)]


def inventory(run: RunDir) -> set[int]:
    return {path.lstat().st_ino for path in run.root.iterdir() if path.name.startswith("step_")}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_newest_is_passed_over(damage: Damage, run: RunDir, finished: RunDir) -> None:
    newest = run.checkpoint(30)
    damage(newest)
    before = inventory(run)
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    assert "step_000030.bin" in trainer.said()
    assert newest.with_name("step_000030.bin.bad").exists() or damage is dangling
    assert os.path.lexists(newest.with_name("step_000030.bin.bad"))
    assert before <= inventory(run), "something was deleted"
    assert newest.read_bytes() == finished.checkpoint(30).read_bytes(), "trained on from 20 to the same bytes"
    [warning] = [e for e in read(run.events) if e.get("what") == "checkpoint passed over"]
    assert "step_000030.bin" in warning["detail"]


def test_no_read_permission(run: RunDir, finished: RunDir) -> None:
    """Root without the capability that lets root read what its mode forbids."""
    run.checkpoint(30).chmod(0)
    bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    with start(run, under=bound) as trainer:
        assert trainer.wait() == 0, trainer.said()
    assert "Permission denied" in trainer.said()
    assert run.root.joinpath("step_000030.bin.bad").exists()
    assert run.checkpoint(30).read_bytes() == finished.checkpoint(30).read_bytes()


def test_a_missing_digest_line_is_warned_about_and_the_file_used(run: RunDir) -> None:
    drop_digest_line(run.checkpoint(30))
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    assert "step_000030.bin has no line in SHA256SUMS" in trainer.said()
    assert not list(run.root.glob("*.bad*"))


def test_all_bad_is_the_end_and_never_a_new_start(run: RunDir) -> None:
    for path in run.checkpoints().values():
        truncate(path)
    before = {path.name: path.read_bytes() for path in run.checkpoints().values()}
    with start(run) as trainer:
        assert trainer.wait() == 78, trainer.said()
    said = trainer.said()
    assert all(name in said for name in before)
    assert "Traceback" not in said
    assert {path.name: path.read_bytes() for path in run.checkpoints().values()} == before
    assert list(read(run.events))[-1]["event"] == "halt"


def test_a_checkpoint_of_another_shape_is_refused(run: RunDir) -> None:
    text = run.run_toml.read_text().replace("n_layers = 2", "n_layers = 1")
    run.run_toml.write_text(text)
    with start(run) as trainer:
        assert trainer.wait() == 78
    assert "parameters" in trainer.said()
