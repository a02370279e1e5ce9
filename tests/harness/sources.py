"""Texts, a policy over them, and the run that is prepared from both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from andrea_corpus.mix import Learn
from andrea_corpus.prepare import prepare
from andrea_corpus.reading import Progress
from andrea_corpus.shards import Shard, group_tokens, held_span
from andrea_corpus.tokenizer import ByteTokenizer, Tokens
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.policy import Policy, parse

PROSE = "The quick brown fox jumps over the lazy dog, naïvely.\n" * 100
SUMS = "".join(f"{i} + {i} = {2 * i}\r\n" for i in range(400))
WISH = Learn(vocab_size=400, steps=100, tokens=512)
"""A tokenizer that takes a moment to learn."""


class Place:
    """A run to be, its sources, and a policy over them."""

    def __init__(self, root: Path) -> None:
        self.texts, self.run = root / "texts", RunDir(root / "run")
        self.texts.mkdir()
        self.write("prose/1.txt", PROSE)
        self.write("prose/2.md", PROSE.upper())
        self.write("sums.txt", SUMS)
        self.text = f'[arms.prose]\npath = "{self.texts}/prose"\n[arms.sums]\npath = "{self.texts}/sums.txt"\n'

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.texts / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    @property
    def policy(self) -> Policy:
        return parse(self.text, "policy", self.texts)

    def prepare(
        self, progress: Callable[[Progress], None] = lambda _: None, *, held_out: float = 0.1
    ) -> dict[str, str]:
        made = prepare(self.run, self.policy, ByteTokenizer(), held_out=held_out, context=64, progress=progress)
        return {name: arm.fingerprint for name, arm in made.items()}

    def refused(self, progress: Callable[[Progress], None] = lambda _: None) -> BadConfig:
        with pytest.raises(BadConfig) as error:
            self.prepare(progress)
        return error.value

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.run.data.iterdir()}


def joined(shard: Shard) -> Tokens:
    """The token stream that was taken apart."""
    tokens, train, held = [], shard.train, shard.held
    size, left = group_tokens(shard.meta.held_out), len(shard.train) + len(shard.held)
    for group in range(-(-left // size)):
        length = min(size, left)
        start, end = held_span(shard.fingerprint, shard.meta.held_out, group, length)
        rest = length - (end - start) - start
        tokens += [train[:start], held[: end - start], train[start : start + rest]]
        train, held, left = train[start + rest :], held[end - start :], left - length
    return np.concatenate(tokens)
