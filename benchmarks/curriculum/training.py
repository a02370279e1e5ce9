"""A small real model as the world of a learner: the trainer's own model, optimizer, schedule, order, shards and probe.

One process and one thread instead of the daemons; no checkpoint, no event. Writes token shards under the folder that
`prepared` is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from andrea_corpus import prepare
from andrea_corpus.order import stream_seed, window_of
from andrea_corpus.shards import Shard, open_shard
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir.layout import Shape
from andrea_rundir.names import RunDir
from andrea_rundir.policy import Arm, Policy
from andrea_rundir.sections import OptimizerConfig
from andrea_train import model
from andrea_train.feed import Batch
from andrea_train.figures import arm_losses
from andrea_train.optimizer import AdamW
from andrea_train.probe import Probe
from andrea_train.schedule import learning_rate
from andrea_train.state import State
from curriculum.simulation import BATCH, Arms

STEPS = 1200
SHAPE = Shape(vocab_size=257, d_model=64, n_heads=4, n_layers=2, context=128)
OPTIMIZER = OptimizerConfig(lr=8e-3, min_lr=8e-4, warmup_steps=120, max_steps=STEPS, batch_size=BATCH)
HELD_OUT = 0.1
HELD_WINDOWS = 128
"""Held-out windows an arm that the model is judged by, the same for every run; the smallest arm has fewer."""


def prepared(texts: Mapping[str, list[str]], folder: Path) -> dict[str, Shard]:
    """The texts as shards of bytes, by arm; made by the code of `andrea prepare`."""
    run, arms = RunDir(folder), {}
    run.root.mkdir(parents=True, exist_ok=True)
    for name, documents in texts.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
        arms[name] = Arm(path=str(path))
    done = prepare.prepare(run, Policy(arms=arms), ByteTokenizer(), held_out=HELD_OUT, context=SHAPE.context)
    return {name: open_shard(run.data, arm.fingerprint, arm=name) for name, arm in done.items()}


class Training:
    """One run: fresh weights and the order of every arm's windows come from the seed, all else is the same."""

    tokens = SHAPE.context

    def __init__(self, shards: Mapping[str, Shard], seed: int) -> None:
        self._shards, self._seed = shards, seed
        self._epoch = {name: shard.n_windows(SHAPE.context) for name, shard in sorted(shards.items())}
        self.windows = {name: float(count) for name, count in self._epoch.items()}
        self._state = State(SHAPE, torch.device("cpu"))
        self._state.w.copy_(model.initial(SHAPE, stream_seed(seed, "weights", 0)))
        self._optimizer = AdamW(self._state, SHAPE, OPTIMIZER)
        self._leaves = model.weights(self._state.w, SHAPE, trainable=True)
        self._gradients = model.weights(self._optimizer.gradient, SHAPE).tensors()
        self._lengths = ByteTokenizer().byte_lengths()
        held = {
            name: shard.held_windows(SHAPE.context, HELD_WINDOWS).astype(np.int64)
            for name, shard in sorted(shards.items())
        }
        self._probe = Probe(held, self._lengths, dict.fromkeys(held, 1.0), batch_size=32)

    def train(self, step: int, counts: Mapping[str, int], cursors: Mapping[str, int]) -> Arms:
        """One step of the trainer's; sequences stand by arm name, then cursor."""
        batch = self._batch(counts, cursors)
        losses = model.losses(self._leaves, torch.from_numpy(batch.windows), SHAPE.n_heads)
        gradients = torch.autograd.grad(losses.mean(), self._leaves.tensors())
        torch._foreach_copy_(self._gradients, list(gradients))
        self._optimizer.step(learning_rate(step, OPTIMIZER), losses.detach())
        arms, row = {}, 0
        for name, (pulls, loss) in arm_losses(batch, losses.tolist()).items():
            size = int(self._lengths[batch.windows[row : row + pulls, 1:]].sum())
            arms[name] = (pulls, loss, size)
            row += pulls
        return arms

    def _batch(self, counts: Mapping[str, int], cursors: Mapping[str, int]) -> Batch:
        rows = []
        for name in sorted(counts):
            shard = self._shards[name]
            for cursor in range(cursors[name], cursors[name] + counts[name]):
                index = window_of(self._seed, shard.fingerprint, cursor, self._epoch[name])
                rows.append(shard.window(index, SHAPE.context))
        return Batch(np.stack(rows).astype(np.int64), {name: counts[name] for name in sorted(counts)})

    def measure(self) -> dict[str, float]:
        """Held-out bits per byte, by arm."""
        bits = self._probe.measure(self._state.w, SHAPE, lambda: False)
        assert bits is not None, "nobody interrupts"
        return bits
