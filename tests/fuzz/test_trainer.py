"""A trainer on a run of which one file is hurt: it trains on, or says in words why it cannot; nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir.names import RunDir
from fuzz.effort import examples
from fuzz.mutations import mutated, mutated_toml
from harness import start

LAST = 20
CODES = (0, 1, 75, 78)
BOUNDED = ["prlimit", f"--data={1 << 30}"]
"""Bytes of memory of its own that a trainer may take: torch itself needs half of it."""
FILES = (
    *("events/000001.jsonl", "plan.jsonl", ".loss.json", "SHA256SUMS", "lineage.json", "train.lock", "train.pid"),
    *("run.toml", "policy.toml", "step_000020.bin", "data/sources.json", "data/tokenizer.json", "data/*.json"),
)


@pytest.fixture(scope="module")
def begun(make: Callable[..., RunDir]) -> RunDir:
    """A run of 20 real steps. Not to be changed."""
    run = make("begun", {"optimizer": {"max_steps": 100}, "samples": {"tokens": 4}})
    with start(run, "--until-step", str(LAST)) as trainer:
        assert trainer.wait() == 0, trainer.said()
    return run


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@examples(2)
def test_a_trainer_starts(
    begun: RunDir, tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    run = RunDir(tmp_path_factory.mktemp("hurt") / "run")
    shutil.copytree(begun.root, run.root)
    path = sorted(run.root.glob(name))[0] if "*" in name else run.root / name
    good = path.read_bytes() if path.exists() else b"{}\n"
    path.write_bytes(data.draw(mutated_toml(good) if name.endswith(".toml") else mutated(good)))
    hurt = path.read_bytes()
    code = train(run)
    kept = {found.read_bytes() for found in run.root.glob("step_*")}
    for one in begun.checkpoints().values():
        assert one.name == path.name or one.read_bytes() in kept, f"{one.name} is gone"
    if code and name != "step_000020.bin":
        assert any(found.read_bytes() == hurt for found in path.parent.glob(f"{path.name}*")), "nobody can look at it"
        path.write_bytes(good)
        assert train(run) == 0
    shutil.rmtree(run.root)


def train(run: RunDir) -> int:
    """One more step; how it ended."""
    with start(run, "--until-step", str(LAST + 1), under=BOUNDED) as trainer:
        code = trainer.wait(120)
    assert code in CODES and "Traceback" not in trainer.said(), trainer.said()
    return code


def test_the_files_are_those_of_a_run(begun: RunDir) -> None:
    for name in set(FILES) - {".loss.json", "lineage.json", "plan.jsonl", "train.pid"}:  # not of a trainer that ended
        assert list(begun.root.glob(name)), name
