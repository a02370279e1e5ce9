"""The writer of a shard: a stream of tokens, split into train and held-out as it goes, durable and named at the end.

Promises that a shard is there whole or not at all. Writes `data/<fingerprint>.train.bin`, `.held.bin`, at last `.json`.
Imports numpy, `andrea_rundir`, `shards` and `tokenizer`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from andrea_corpus.shards import Meta, group_tokens, held_span
from andrea_corpus.tokenizer import Tokens, token_dtype
from andrea_rundir.faults import about
from andrea_rundir.publish import fsync_dir, publish

_WRITEBACK = 64 << 20
"""Bytes after which the disk is set to work."""


class _File:
    """One .bin under its temporary name, digested as it is written."""

    def __init__(self, path: Path) -> None:
        self.path, self.temporary = path, path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self.tokens, self.digest = 0, hashlib.sha256()
        self._written = self._started = 0
        self._fd = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # tells sweep that we live

    def write(self, tokens: Tokens) -> None:
        """Append; a short write goes on where it ended. OSError propagates."""
        data = tokens.view(np.uint8).data
        self.digest.update(data)
        self.tokens += len(tokens)
        with about(self.path):
            while data:
                written = os.write(self._fd, data)
                data = data[written:]
                self._written += written
        if self._written - self._started >= _WRITEBACK:
            # Starts the writing to disk now, beside the encoding, and drops what is there already: at the end of a
            # large source fsync has little left to wait for, and the cache still holds what others had in it.
            os.posix_fadvise(self._fd, 0, self._written, os.POSIX_FADV_DONTNEED)
            self._started = self._written

    def seal(self) -> None:
        """Durable, and under its own name."""
        with about(self.path):
            os.fsync(self._fd)
        self.temporary.rename(self.path)

    def close(self) -> None:
        """Let go; an unsealed file is removed."""
        os.close(self._fd)
        self.temporary.unlink(missing_ok=True)


class ShardWriter:
    """Writes one shard: `add` tokens, `publish` at the end; leaving the `with` before that leaves nothing.

    Splitting, digesting and writing a group happens on a second thread while the next one is filled.
    """

    def __init__(self, folder: Path, fingerprint: str, vocab_size: int, held_out: float) -> None:
        self._folder, self._fingerprint, self._held_out = folder, fingerprint, held_out
        self._group, self._spare = np.empty((2, group_tokens(held_out)), token_dtype(vocab_size))
        self._worker, self._pending = ThreadPoolExecutor(1, "shard"), Future[None]()
        self._pending.set_result(None)
        self._filled = self._groups = self.tokens = 0
        self._train = _File(folder / f"{fingerprint}.train.bin")
        self._held = _File(folder / f"{fingerprint}.held.bin")

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.shutdown()
        self._train.close()
        self._held.close()

    def add(self, tokens: Tokens) -> None:
        """Append ids [n]; OSError propagates. `self.tokens` counts them."""
        self.tokens += len(tokens)
        while len(tokens):
            taken = tokens[: len(self._group) - self._filled]
            self._group[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            tokens = tokens[len(taken) :]
            if self._filled == len(self._group):
                self._flush()

    def _flush(self) -> None:
        """Hand the group that is in memory to the second thread, once the one before is written."""
        self._pending.result()
        self._pending = self._worker.submit(self._split, self._group[: self._filled], self._groups)
        self._group, self._spare = self._spare, self._group
        self._filled, self._groups = 0, self._groups + 1

    def _split(self, group: Tokens, number: int) -> None:
        """Write one group to the two files, on the second thread."""
        start, end = held_span(self._fingerprint, self._held_out, number, len(group))
        for file, part in (
            (self._train, group[:start]),
            (self._held, group[start:end]),
            (self._train, group[end:]),
        ):
            if len(part):
                file.write(part)

    def publish(self, **facts: Any) -> Meta:
        """Seal both files, then publish the JSON; `facts` are the fields of Meta that tokens do not tell."""
        if self._filled:
            self._flush()
        self._pending.result()
        meta = Meta(
            fingerprint=self._fingerprint,
            held_out=self._held_out,
            train_tokens=self._train.tokens,
            train_sha256=self._train.digest.hexdigest(),
            held_tokens=self._held.tokens,
            held_sha256=self._held.digest.hexdigest(),
            **facts,
        )
        self._train.seal()
        self._held.seal()
        fsync_dir(self._folder)
        publish(self._folder / f"{self._fingerprint}.json", (json.dumps(asdict(meta), indent=1) + "\n").encode())
        return meta
