"""Token shards: named by what is in them, written once (`shardwriter`), never changed; opened verified, by mmap.

A shard is `data/<fingerprint>.train.bin`, `.held.bin` (bare little-endian token ids) and `.json` (published
last: a shard is there when its JSON is). It is a function of tokenizer, normalised text and held-out share
alone. Documents are packed end to end with BOS before each, so a window can join unrelated texts. Held-out
spans are cut while the stream is written, group by group, so memory is bounded and the length need not be
known. Writes no file. Imports numpy, `andrea_rundir` and `tokenizer`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from andrea_corpus.tokenizer import Tokens, token_dtype
from andrea_rundir import jsontext
from andrea_rundir.faults import BadConfig, raise_shortage

_SPAN = 4096
"""Tokens of one held-out span: a few windows, so spans are many and spread over the whole source."""
_MAX_GROUP = 1 << 22
_MIN_HELD = 1025
"""Held-out tokens of a small source: one window of context 1024 (but never more than half of the source)."""
_PIECE = 8 << 20
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Meta:
    """What a shard's JSON says: what it was made from, and what its two files must be."""

    fingerprint: str
    tokenizer: str
    """Digest of the tokenizer."""
    vocab_size: int
    content: str
    """Digest of the normalised text with its document boundaries."""
    held_out: float
    documents: int
    bytes: int
    """Of normalised text."""
    replaced: int
    """Characters that stand for bytes that were not UTF-8."""
    train_tokens: int
    train_sha256: str
    held_tokens: int
    held_sha256: str
    version: int = 1


def fingerprint_of(tokenizer: str, content: str, held_out: float) -> str:
    """16 hex digits that name a shard: digests of tokenizer and content, and the held-out share."""
    return hashlib.sha256(f"andrea shard 1\0{tokenizer}\0{content}\0{held_out!r}".encode()).hexdigest()[:16]


def group_tokens(held_out: float) -> int:
    """Tokens from one held-out span to the next; also all that a writer keeps in memory."""
    return max(2, min(round(_SPAN / held_out), _MAX_GROUP))


def _held_length(held_out: float, group: int, tokens: int) -> int:
    """Tokens held out of a group: its share; of the first at least 1025 or half, so every arm can be probed."""
    share = round(tokens * held_out)
    return max(share, min(_MIN_HELD, tokens // 2)) if group == 0 else share


def held_span(fingerprint: str, held_out: float, group: int, tokens: int) -> tuple[int, int]:
    """Start and end of the one stretch held out of group number `group`, at a place keyed by the fingerprint."""
    length = _held_length(held_out, group, tokens)
    key = blake2b(f"andrea held-out 1\0{fingerprint}\0{group}".encode(), digest_size=8).digest()
    start = int.from_bytes(key, "little") % (tokens - length + 1)
    return start, start + length


def split_sizes(tokens: int, held_out: float) -> tuple[int, int]:
    """How many of that many tokens go to training and how many are held out."""
    size = group_tokens(held_out)
    held = sum(
        _held_length(held_out, group, min(size, tokens - start)) for group, start in enumerate(range(0, tokens, size))
    )
    return tokens - held, held


@dataclass(frozen=True)
class Shard:
    """One arm's tokens, memory-mapped and verified."""

    meta: Meta
    train: Tokens
    held: Tokens

    @property
    def fingerprint(self) -> str:
        """The shard's name: 16 hex digits."""
        return self.meta.fingerprint

    def n_windows(self, context: int) -> int:
        """ceil((tokens - 1) / context) training windows."""
        return _windows(len(self.train), context)

    def window(self, index: int, context: int) -> Tokens:
        """Training window `index`, ids [context + 1]: inputs and, one on, targets; the last is end-aligned."""
        return _window(self.train, index, context)

    def held_windows(self, context: int, limit: int) -> Tokens:
        """At most `limit` held-out windows, evenly spread, ids [k, context + 1]."""
        n = _windows(len(self.held), context)
        k = min(limit, n)
        return np.stack([_window(self.held, i * n // k, context) for i in range(k)])


def _windows(tokens: int, context: int) -> int:
    """ceil((tokens - 1) / context): targets are tokens 1 to the last."""
    return -((1 - tokens) // context)


def _window(tokens: Tokens, index: int, context: int) -> Tokens:
    """Window `index` of a stream that holds at least context + 1 tokens."""
    if not 0 <= index < _windows(len(tokens), context):
        raise IndexError(f"window {index} of {_windows(len(tokens), context)}")
    start = min(index * context, len(tokens) - 1 - context)
    return tokens[start : start + context + 1]


def read_meta(folder: Path, fingerprint: str) -> Meta | None:
    """The shard's JSON, None when there is none; ValueError when it is not what this version writes."""
    if not _FINGERPRINT.fullmatch(fingerprint):  # it becomes a file's name
        raise ValueError(f"{fingerprint[:40]!r} is no shard's name")
    try:
        fields = jsontext.loads((folder / f"{fingerprint}.json").read_bytes())
    except FileNotFoundError:
        return None
    try:
        meta = Meta(**fields)
        for name, kind in Meta.__annotations__.items():
            if type(getattr(meta, name)).__name__ != kind:
                raise TypeError(f"{name} is no {kind}")
        named = fingerprint_of(meta.tokenizer, meta.content, meta.held_out)
    except TypeError as error:
        raise ValueError(str(error)) from error
    if meta.version != 1 or meta.fingerprint != fingerprint or named != fingerprint:
        raise ValueError(f"it describes shard {named}, version {meta.version}")
    return meta


def open_shard(folder: Path, fingerprint: str, *, arm: str, progress: Callable[[int], None] = lambda _: None) -> Shard:
    """Map the shard after reading it through once; `progress` is told the bytes verified so far.

    Raises BadConfig naming arm, fingerprint and file when anything is missing, of the wrong size or damaged.
    """

    def bad(path: Path, found: str, expected: str = "") -> BadConfig:
        return BadConfig(
            f"the shard of arm {arm} ({fingerprint}) is missing or damaged",
            where=str(path), found=found, expected=expected, todo="run `andrea prepare RUN`",
        )  # fmt: skip

    try:
        meta = read_meta(folder, fingerprint)
    except (OSError, ValueError) as error:
        raise_shortage(error)
        raise bad(folder / f"{fingerprint}.json", str(error)) from error
    if meta is None:
        raise bad(folder / f"{fingerprint}.json", "no such file")
    dtype, done = token_dtype(meta.vocab_size), 0
    for path, tokens, digest in (
        (folder / f"{fingerprint}.train.bin", meta.train_tokens, meta.train_sha256),
        (folder / f"{fingerprint}.held.bin", meta.held_tokens, meta.held_sha256),
    ):
        try:
            if (size := path.stat().st_size) != tokens * dtype.itemsize:
                raise bad(path, f"{size} bytes", f"{tokens * dtype.itemsize} bytes")
            if (actual := _sha256(path, done, progress)) != digest:
                raise bad(path, f"sha256 {actual}", f"sha256 {digest}")
        except OSError as error:
            raise_shortage(error)
            raise bad(path, str(error.strerror)) from error
        done += size
    train, held = (np.memmap(folder / f"{fingerprint}.{part}.bin", dtype, "r") for part in ("train", "held"))
    return Shard(meta, train, held)


def _sha256(path: Path, done: int, progress: Callable[[int], None]) -> str:
    """SHA-256 (hex) of a file, in bounded memory; `progress` counts on from `done`."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(_PIECE))
    with open(path, "rb", buffering=0) as file:
        while n := file.readinto(buffer):
            digest.update(buffer[:n])
            progress(done := done + n)
    return digest.hexdigest()
