"""Continues a prompt from a checkpoint file, on the CPU: what `andrea sample` asks for.

Promises the same text for the same file, prompt, seed and machine. Reads a checkpoint and the run's tokenizer;
writes no file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from andrea_corpus.order import stream_seed
from andrea_corpus.tokenizer import load as load_tokenizer
from andrea_rundir import checkpoint
from andrea_rundir.faults import Refused
from andrea_rundir.layout import Shape
from andrea_train import model
from andrea_train.answer import Request, answer
from andrea_train.sampler import continue_prompts, draws


def flat_weights(path: Path, n_params: int) -> Tensor:
    """The weights of a checkpoint file, float32 `[n_params]`; Refused when one is not finite."""
    values = np.fromfile(path, "<f4", count=n_params, offset=checkpoint.HEADER.size)
    if len(values) < n_params or not np.isfinite(values).all():
        raise Refused("not a usable checkpoint", where=str(path), found="weights that are cut short or not finite")
    return torch.from_numpy(values)


def complete(request: Request) -> Mapping[str, Any]:
    """`texts`: `count` continuations of `prompt` (after a BOS), of `tokens` tokens each.

    `dropped`: tokens at the prompt's start that did not fit beside them into the model's context.
    """
    shape = Shape(**request["shape"])
    tokenizer = load_tokenizer(Path(request["tokenizer"]))
    tokens = min(request["tokens"], shape.context - 1)
    whole = [tokenizer.bos, *tokenizer.encode(request["prompt"].encode("utf-8", "replace")).tolist()]
    prompt = whole[-(shape.context - tokens) :]
    streams = [stream_seed(request["seed"], "sample", i) for i in range(request["count"])]
    drawn = continue_prompts(
        model.weights(flat_weights(Path(request["file"]), shape.n_params), shape),
        torch.tensor([prompt] * len(streams)),
        n_heads=shape.n_heads,
        uniform=torch.stack([draws(seed, tokens) for seed in streams]),
        temperature=request["temperature"],
        interrupted=lambda: False,
    )
    assert drawn is not None, "nothing interrupts it"
    texts = [tokenizer.decode(row.numpy()).decode("utf-8", "replace") for row in drawn]
    return {"texts": texts, "tokens": tokens, "dropped": len(whole) - len(prompt)}


if __name__ == "__main__":
    sys.exit(answer(complete))
