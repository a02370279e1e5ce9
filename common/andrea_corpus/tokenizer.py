"""Bytes to token ids and back, behind one interface; `data/tokenizer.json` says which tokenizer a run uses.

A tokenizer promises that decoding gives the encoded bytes back exactly, and names itself by a digest, which
is part of every shard's fingerprint. Writes nothing itself. Imports numpy and `andrea_rundir.faults`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from andrea_rundir.faults import BadConfig

Tokens = NDArray[np.unsignedinteger[Any]]
"""Token ids, uint16 or uint32."""

_UNKNOWN = "\ufffd".encode()


class Tokenizer(Protocol):
    """What the corpus and the trainer ask of a tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of ids; they run from 0."""

    @property
    def bos(self) -> int:
        """The id that stands before every document and in no text."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `to_json()`."""

    def encode(self, data: bytes) -> Tokens:
        """Ids [n] of UTF-8 text, without BOS; `decode` of them is `data`."""

    def decode(self, tokens: NDArray[Any]) -> bytes:
        """The bytes of ids [n]; BOS gives nothing, an id the tokenizer does not have gives U+FFFD."""

    def byte_lengths(self) -> NDArray[np.int32]:
        """Bytes [vocab_size] each id decodes to; 0 for BOS."""

    def to_json(self) -> str:
        """All that `load` needs."""


def token_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The type tokens are stored in: little-endian uint16 where it is wide enough, else uint32."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class ByteTokenizer:
    """Each byte is its own id; 256 is BOS."""

    vocab_size = 257
    bos = 256

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"kind": "bytes", "version": 1}) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `to_json()`."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def encode(self, data: bytes) -> Tokens:
        """Ids [len(data)], uint16."""
        return np.frombuffer(data, np.uint8).astype("<u2")

    def decode(self, tokens: NDArray[Any]) -> bytes:
        """The bytes of ids [n]; BOS gives nothing, any id past it (a wider model may draw one) U+FFFD."""
        tokens = np.asarray(tokens)
        known = tokens[tokens != self.bos]
        if known.size and (known.max() > 255 or known.min() < 0):
            return b"".join(bytes([i]) if 0 <= i < 256 else _UNKNOWN for i in known.tolist())
        return bytes(known.astype(np.uint8))

    def byte_lengths(self) -> NDArray[np.int32]:
        """1 for every byte, 0 for BOS: int32 [257]."""
        lengths = np.ones(self.vocab_size, np.int32)
        lengths[self.bos] = 0
        return lengths


def load(path: Path) -> Tokenizer:
    """The tokenizer that `data/tokenizer.json` describes; BadConfig when it is missing or not one of ours."""
    todo = "run `andrea prepare RUN`"
    try:
        described = json.loads(path.read_bytes())
        kind = described["kind"], described["version"]
    except OSError as error:
        raise BadConfig(
            "the run's tokenizer cannot be read", where=str(path), found=str(error.strerror), todo=todo
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadConfig(
            "this file does not describe a tokenizer", where=str(path), found=str(error), todo=todo
        ) from error
    if kind != ("bytes", 1):
        raise BadConfig(
            "unknown kind of tokenizer",
            where=str(path),
            found=f"kind {kind[0]!r}, version {kind[1]!r}",
            expected="'bytes', version 1",
        )
    return ByteTokenizer()
