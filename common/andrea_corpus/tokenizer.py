"""Bytes to token ids and back, behind one interface; `data/tokenizer.json` says which tokenizer a run uses.

A tokenizer promises that decoding gives the encoded bytes back exactly, and names itself by a digest, which
is part of every shard's fingerprint. Writes nothing itself. Imports numpy and `andrea_rundir.faults`, and
`bpe` when there is one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from andrea_rundir import jsontext
from andrea_rundir.faults import BadConfig, raise_shortage

Tokens = NDArray[np.unsignedinteger[Any]]
"""Token ids, uint16 or uint32."""

UNKNOWN = "\ufffd".encode()
"""What an id decodes to that the tokenizer does not have."""


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

    def encode_many(self, texts: Sequence[bytes]) -> list[Tokens]:
        """Ids of each text, as `encode` gives them, on as many cores as there are."""

    def decode(self, tokens: NDArray[Any]) -> bytes:
        """The bytes of ids [n]; BOS gives nothing, an id the tokenizer does not have gives U+FFFD."""

    def byte_lengths(self) -> NDArray[np.int32]:
        """Bytes [vocab_size] each id decodes to; 0 for BOS."""

    def to_json(self) -> str:
        """All that `load` needs."""

    def exported(self) -> str:
        """A JSON for the `tokenizers` library, with the same ids; a text's encoding there starts with BOS."""


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

    def encode_many(self, texts: Sequence[bytes]) -> list[Tokens]:
        """Ids of each text."""
        return [self.encode(text) for text in texts]

    def exported(self) -> str:
        """A tokenizers JSON: id = byte, BOS after them."""
        from andrea_corpus.bpe import plain_bytes

        return plain_bytes(self.bos)

    def decode(self, tokens: NDArray[Any]) -> bytes:
        """The bytes of ids [n]; BOS gives nothing, any id past it (a wider model may draw one) U+FFFD."""
        tokens = np.asarray(tokens)
        known = tokens[tokens != self.bos]
        if known.size and (known.max() > 255 or known.min() < 0):
            return b"".join(bytes([i]) if 0 <= i < 256 else UNKNOWN for i in known.tolist())
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
        described = jsontext.loads(path.read_bytes())
        kind = described["kind"], described["version"]
    except OSError as error:
        raise_shortage(error)
        raise BadConfig(
            "the run's tokenizer cannot be read", where=str(path), found=str(error.strerror), todo=todo
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadConfig(
            "this file does not describe a tokenizer", where=str(path), found=str(error), todo=todo
        ) from error
    if kind == ("bytes", 1):
        return ByteTokenizer()
    if kind == ("bpe", 1):
        from andrea_corpus.bpe import BpeTokenizer

        try:
            return BpeTokenizer(described["tokenizers"], described["bos"])
        except Exception as error:  # the library raises plain Exception
            found = f"{type(error).__name__}: {error}"
        raise BadConfig("the run's tokenizer is damaged", where=str(path), found=found, todo=todo)
    raise BadConfig(
        "unknown kind of tokenizer",
        where=str(path),
        found=f"kind {kind[0]!r}, version {kind[1]!r}",
        expected="'bytes' or 'bpe', version 1",
    )


def check_fits(tokenizer: Tokenizer, vocab_size: int, where: str) -> None:
    """BadConfig when the tokenizer has ids that a model of so many does not know."""
    if tokenizer.vocab_size > vocab_size:
        raise BadConfig(
            "the tokenizer does not fit the model",
            where=where,
            found=f"{tokenizer.vocab_size:,} tokens",
            expected=f"at most {vocab_size:,}, the model's vocab_size",
            todo="raise [model] vocab_size, or use a smaller tokenizer",
        )
