from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from andrea_corpus import bpe
from andrea_rundir import config
from andrea_rundir.events import read
from andrea_rundir.layout import Shape
from andrea_rundir.names import RunDir
from harness import start
from harness.commands import Andrea, Wish, snapshot
from harness.models import TEXTS, write_checkpoint


@pytest.fixture
def origin(wish: Wish) -> Path:
    """A checkpoint of step 10 with weights and moments that training can go on from."""
    path = wish.folder / "elsewhere.bin"
    shape = config.load(wish.config).shape
    draw = np.random.default_rng(0)
    w, m = draw.normal(0, 0.05, shape.n_params), draw.normal(0, 1e-3, shape.n_params)
    values = np.concatenate([w, m, m * m + 1e-6]).astype("<f4")
    path.write_bytes(np.array([10, shape.n_params], "<i4").tobytes() + values.tobytes())
    return path


def test_history_starts_at_the_step_of_the_file(andrea: Andrea, wish: Wish, origin: Path) -> None:
    done = andrea(*wish.arguments, "--from", origin, "--json")
    assert done.code == 0 and done.json["from"]["step"] == 10
    run = RunDir(wish.run)
    digest = sha256(origin.read_bytes()).hexdigest()
    assert run.checkpoint(10).read_bytes() == origin.read_bytes()
    assert run.sums.read_text() == f"{digest}  step_000010.bin\n"
    lineage = json.loads(run.lineage.read_text())
    assert (lineage["file"], lineage["step"], lineage["digest"]) == (str(origin), 10, digest)
    with start(run, "--until-step", "20") as trainer:
        assert trainer.wait() == 0, trainer.said()
    steps = [event["step"] for event in read(run.events) if event["event"] == "step"]
    assert steps == list(range(11, 21)) and run.checkpoint(20).exists()


def refused(andrea: Andrea, wish: Wish, origin: Path, code: int, *said: str) -> None:
    before = snapshot(wish.folder)
    done = andrea(*wish.arguments, "--from", origin)
    assert done.code == code and all(text in done.err for text in said), done.err
    assert snapshot(wish.folder) == before


def test_what_does_not_go_together_is_refused(andrea: Andrea, wish: Wish, origin: Path) -> None:
    other = wish.folder / "other.bin"
    write_checkpoint(other, Shape(257, 16, 2, 1, 16), step=10)
    refused(andrea, wish, other, 1, "not of this model", str(other), "expected: 29,248 parameters")
    cut = wish.folder / "cut.bin"
    cut.write_bytes(origin.read_bytes()[:-1])
    refused(andrea, wish, cut, 1, "not a usable checkpoint", str(cut))
    spoilt = wish.folder / "spoilt.bin"
    spoilt.write_bytes(origin.read_bytes()[:-4] + b"\0\0\x80\xbf")  # v < 0
    refused(andrea, wish, spoilt, 1, "not a usable checkpoint", "zero or more")
    refused(andrea, wish, wish.folder / "none.bin", 1, "No such file")
    wish.add(wish.config, "max_steps = 40", "max_steps = 10")
    refused(andrea, wish, origin, 78, "step 10 of 10", "raise max_steps")


def test_weights_need_their_tokenizer(andrea: Andrea, wish: Wish, origin: Path) -> None:
    wish.add(wish.config, "[model]", '[tokenizer]\nkind = "bpe"\n[model]')
    refused(andrea, wish, origin, 78, "tokenizer.path", "andrea export")
    (wish.folder / "own.json").write_text(bpe.learn(iter(TEXTS), 257).exported())
    wish.add(wish.config, 'kind = "bpe"', 'kind = "bpe"\npath = "own.json"')
    assert andrea(*wish.arguments, "--from", origin).code == 0
    assert config.load(wish.run / "run.toml").tokenizer.path == str(wish.folder / "own.json")
    made = snapshot(wish.run)
    (wish.folder / "own.json").unlink()  # the run has its copy
    assert andrea("prepare", wish.run).code == 0
    assert snapshot(wish.run) == made
    (wish.folder / "own.json").write_text(bpe.learn(iter(["other text"]), 257).exported().replace("<|bos|>", "<s>"))
    done = andrea("prepare", wish.run)
    assert done.code == 78 and "this run has another tokenizer" in done.err


def test_a_tokenizer_too_large_for_the_model_is_refused(andrea: Andrea, wish: Wish) -> None:
    (wish.folder / "own.json").write_text(bpe.learn(iter(TEXTS), 300).exported())
    wish.add(wish.config, "[model]", '[tokenizer]\nkind = "bpe"\npath = "own.json"\n[model]')
    before = snapshot(wish.folder)
    done = andrea(*wish.arguments)
    assert done.code == 78 and "300 tokens" in done.err and "at most 257" in done.err
    assert snapshot(wish.folder) == before
