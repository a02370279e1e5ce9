"""Small runs on text made here: a model of a few thousand parameters that trains hundreds of steps a second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from andrea_corpus.order import permute
from andrea_corpus.prepare import prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir import config, policy
from andrea_rundir.names import RunDir

SMALL: dict[str, dict[str, Any]] = {
    "run": {
        "name": "small",
        "id": "0" * 32,
        "device": "cpu",
        "precision": "fp32",
        "threads": 1,
        "plan_wait": 0.0,
    },
    "model": {"vocab_size": 257, "d_model": 32, "n_heads": 2, "n_layers": 2, "context": 32},
    "optimizer": {"lr": 3e-3, "min_lr": 3e-4, "warmup_steps": 10, "max_steps": 60, "batch_size": 4},
    "checkpoint": {"every": 10},
    "samples": {"tokens": 16},
    "probe": {"every": 20, "held_out": 0.1},
}

WORDS = (
    "the river carries old stones down to a quiet sea while small boats wait under grey morning light and "
    "someone on the bridge counts every wave as if numbers could hold water"
).split()


def texts(folder: Path, *, words: int = 3000) -> dict[str, Path]:
    """Two arms of unlike text: sentences of a small vocabulary, and sums."""
    folder.mkdir(parents=True, exist_ok=True)
    prose = [WORDS[permute(1, "prose", i, len(WORDS), i % len(WORDS))] for i in range(words)]
    sums = [f"{a} + {b} = {a + b}" for i in range(words // 4) for a, b in [(i % 97, (7 * i) % 89)]]
    written = {"prose": " ".join(prose), "sums": "\n".join(sums)}
    paths = {}
    for name, text in written.items():
        paths[name] = folder / f"{name}.txt"
        paths[name].write_text(text + "\n", encoding="utf-8")
    return paths


def make_run(
    folder: Path,
    *,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    arms: Mapping[str, Path] | None = None,
    rules: str = "",
) -> RunDir:
    """A prepared run in `folder`. `changes` go over SMALL, section by section; `rules` is more policy text."""
    folder.mkdir(parents=True)
    run = RunDir(folder)
    sections = {name: {**SMALL.get(name, {}), **(changes or {}).get(name, {})} for name in {*SMALL, *(changes or {})}}
    settings = config.build(sections, "harness")
    run.run_toml.write_text(config.dump(settings), encoding="utf-8")
    sources = arms if arms is not None else texts(folder.parent / f"{folder.name}-texts")
    policy_text = "".join(f'[arms.{name}]\npath = "{path}"\n' for name, path in sources.items())
    run.policy_toml.write_text(policy_text + rules, encoding="utf-8")
    prepare(
        run,
        policy.load(run.policy_toml),
        ByteTokenizer(),
        held_out=settings.probe.held_out,
        context=settings.shape.context,
    )
    return run
