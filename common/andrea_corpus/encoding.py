"""One arm's text made a shard: tokenized in batches on all cores, written as it goes by, checked against what was read
before.

Memory is bounded: a batch of a megabyte and one group of tokens. Writes, through `ShardWriter`, the files of one shard.
Imports this package and `andrea_rundir.faults`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from andrea_corpus import ledger
from andrea_corpus.reading import Reading
from andrea_corpus.shards import Meta, fingerprint_of, split_sizes
from andrea_corpus.shardwriter import ShardWriter
from andrea_corpus.text import Piece
from andrea_corpus.tokenizer import Tokenizer, token_dtype
from andrea_rundir.faults import BadConfig

_BATCH = 1 << 20
"""Bytes of text that are tokenized together, on all cores."""


def write_shard(
    folder: Path, reading: Reading, content: str, tokenizer: Tokenizer, *, held_out: float, context: int
) -> Meta:
    """Write one arm's shard; BadConfig when its text is not `content`, what a pass before found, or too little."""
    fingerprint = fingerprint_of(tokenizer.digest, content, held_out)
    with ShardWriter(folder, fingerprint, tokenizer.vocab_size, held_out) as writer:
        _encode(reading, tokenizer, writer)
        _check_same(reading, content)
        check_size(reading.name, writer.tokens, held_out, context)
        return writer.publish(
            tokenizer=tokenizer.digest,
            vocab_size=tokenizer.vocab_size,
            content=reading.content,
            documents=reading.documents,
            bytes=reading.bytes,
            replaced=reading.replaced,
        )


def _encode(reading: Reading, tokenizer: Tokenizer, writer: ShardWriter) -> None:
    """All of an arm's text as tokens, BOS before each document."""
    bos = np.array([tokenizer.bos], token_dtype(tokenizer.vocab_size))
    for batch in _batches(reading):
        for piece, tokens in zip(batch, tokenizer.encode_many([piece.data for piece in batch]), strict=True):
            if piece.first:
                writer.add(bos)
            writer.add(tokens)
        reading.tokens = writer.tokens


def _batches(pieces: Reading) -> Iterator[list[Piece]]:
    batch, size = [], 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.data)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    yield batch


def check_size(name: str, tokens: int, held_out: float, context: int) -> None:
    """BadConfig unless either part of an arm of so many tokens holds a window."""
    train, held = split_sizes(tokens, held_out)
    if min(train, held) <= context:
        raise BadConfig(
            f"arm {name} has too little text",
            found=f"{tokens} tokens: {train} to train on, {held} held out",
            expected=f"more than {context} of each (the model's context)",
            todo="add text to it, raise [probe] held_out or lower [model] context",
        )


def _check_same(reading: Reading, before: str) -> None:
    """This pass must have read what the first did."""
    if (after := reading.content) != before:
        files = reading.paths
        raise BadConfig(
            f"a source of arm {reading.name} changed while it was read",
            where=", ".join(str(file) for file in files[:3]) + (", ..." if len(files) > 3 else ""),
            found=f"content {after[:16]}",
            expected=f"content {before[:16]}",
            todo=f"let its writer finish, then {ledger.TODO}",
        )
