"""A run with one checkpoint of random weights: for everything that looks at a file and trains nothing."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np

from andrea_corpus import bpe
from andrea_corpus.tokenizer import ByteTokenizer, Tokenizer
from andrea_rundir import config, digests
from andrea_rundir.layout import Shape
from andrea_rundir.names import RunDir

SHAPE = Shape(vocab_size=300, d_model=32, n_heads=4, n_layers=3, context=24)
TEXTS = ["the quick brown fox jumps over the lazy dog, naïvely; 12 + 30 = 42\n" * 40]


def write_checkpoint(path: Path, shape: Shape, *, step: int, seed: int = 0) -> None:
    """Normal weights of deviation 0.3: scores that differ clearly; m and v as after some steps."""
    draw = np.random.default_rng(seed)
    parts = [draw.normal(0, 0.3, shape.n_params), draw.normal(0, 1, shape.n_params), draw.random(shape.n_params)]
    path.write_bytes(np.array([step, shape.n_params], "<i4").tobytes() + np.concatenate(parts).astype("<f4").tobytes())


def model_run(folder: Path, *, learned: bool = True, step: int = 70) -> RunDir:
    """run.toml, a tokenizer, and `step_NNNNNN.bin` with its digest line, in `folder`."""
    run = RunDir(folder)
    run.data.mkdir(parents=True)
    shape = {name: getattr(SHAPE, name) for name in ("vocab_size", "d_model", "n_heads", "n_layers", "context")}
    sections = {
        "run": {"name": "shown", "device": "cpu", "precision": "fp32", "threads": 1},
        "model": shape,
        "tokenizer": {"kind": "bpe" if learned else "bytes"},
    }
    run.run_toml.write_text(config.dump(config.build(sections, "harness")), encoding="utf-8")
    tokenizer: Tokenizer = bpe.learn(iter(TEXTS), SHAPE.vocab_size) if learned else ByteTokenizer()
    (run.data / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    write_checkpoint(run.checkpoint(step), SHAPE, step=step)
    digests.record(run.sums, run.checkpoint(step).name, sha256(run.checkpoint(step).read_bytes()).hexdigest())
    return run
