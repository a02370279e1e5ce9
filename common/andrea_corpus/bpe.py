"""Byte-level BPE: 256 bytes, BOS, and pieces learned from text; whatever the text, it comes back byte for byte.

Every id stands for fixed bytes and unseen text falls back to single bytes, so nothing is ever unknown. Learned here by
the `tokenizers` library, or taken from a tokenizers JSON that passes the same promise. Writes nothing. Imports
`tokenizers`, and this package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from andrea_corpus.tokenizer import UNKNOWN, Tokens, token_dtype
from andrea_rundir.faults import BadConfig, raise_shortage

BOS = "<|bos|>"
_BOS_NAMES = (BOS, "<|begin_of_text|>", "<|endoftext|>", "<bos>", "<s>")
_TOUCHSTONE = (
    " a  b\n\n\tc\r\nDon't STOP <|bos|> <s> e\u0301 \u00e9 \ufb01 \u212b \u0130\u0131 \u4f60\u597d \u0645\u0631 "
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 "
    "\u2028\ufeff\x00\x7f\x85\u00a0\u3000\ud7ff\ue000\U0010ffff 12345  "
)
"""Text that a tokenizer which lowers case, composes characters, or adds or eats blanks does not give back."""


class BpeTokenizer:
    """A tokenizers JSON (parsed) and the id that stands before documents."""

    def __init__(self, described: dict[str, Any], bos: int) -> None:
        self._described, self.bos = described, bos
        self._model = tokenizers.Tokenizer.from_str(json.dumps(described))
        self._model.encode_special_tokens = True  # "<|bos|>" in a text is seven characters of text
        self._bytes = _byte_table(self._model, described, bos)
        self.vocab_size = len(self._bytes)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"kind": "bpe", "version": 1, "bos": self.bos, "tokenizers": self._described}) + "\n"

    def exported(self) -> str:
        """A tokenizers JSON of the same ids."""
        return json.dumps(self._described, ensure_ascii=False, indent=1) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `to_json()`."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def encode(self, data: bytes) -> Tokens:
        """Ids [n] of UTF-8 text."""
        return self.encode_many([data])[0]

    def encode_many(self, texts: Sequence[bytes]) -> list[Tokens]:
        """Ids of each text, on all cores."""
        found = self._model.encode_batch_fast([text.decode() for text in texts], add_special_tokens=False)
        dtype = token_dtype(self.vocab_size)
        return [np.array(one.ids, dtype) for one in found]

    def decode(self, tokens: NDArray[Any]) -> bytes:
        """The bytes of ids [n]; BOS gives nothing, an id the tokenizer does not have gives U+FFFD."""
        known = len(self._bytes)
        return b"".join(self._bytes[i] if 0 <= i < known else UNKNOWN for i in np.asarray(tokens).tolist())

    def byte_lengths(self) -> NDArray[np.int32]:
        """Bytes [vocab_size] each id decodes to; 0 for BOS."""
        return np.array([len(data) for data in self._bytes], np.int32)


def learn(texts: Iterator[str], vocab_size: int) -> BpeTokenizer:
    """A tokenizer of at most so many ids (at least 257) for text like this; the same texts give the same one."""
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    bos = model.token_to_id(BOS)
    assert bos is not None, "it is the trainer's first token"
    model.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)])
    return BpeTokenizer(json.loads(model.to_str()), bos)


def given(path: Path) -> BpeTokenizer:
    """The tokenizer of a tokenizers JSON; BadConfig when it is none, or does not give text back byte for byte."""
    try:
        described = json.loads(path.read_bytes())
        if not isinstance(described, dict) or described.get("model", {}).get("type") != "BPE":
            raise ValueError("not a byte-level BPE tokenizer")
        described |= {"truncation": None, "padding": None}
        return _faithful(described)
    except OSError as error:
        raise_shortage(error)
        found = error.strerror or str(error)
    except Exception as error:  # the library raises plain Exception
        found = str(error).splitlines()[0]
    raise BadConfig(
        "this tokenizer cannot be used",
        where=str(path),
        found=found,
        expected="the JSON of a byte-level BPE tokenizer that gives every text back as it was",
        todo="name another one in [tokenizer] path, or leave it out and let prepare make one",
    )


def _faithful(described: dict[str, Any]) -> BpeTokenizer:
    """ValueError when something is lost between a text and its ids, or nothing can stand before a document."""
    names: dict[str, int] = {
        token["content"]: token["id"] for token in described.get("added_tokens", []) if token["special"]
    }
    bos = next((names[name] for name in _BOS_NAMES if name in names), -1)
    if bos < 0:
        raise ValueError(
            f"none of its special tokens ({', '.join(names) or 'it has none'}) is one of {', '.join(_BOS_NAMES)}"
        )
    if any((token["lstrip"] or token["rstrip"]) and not token["special"] for token in described["added_tokens"]):
        raise ValueError("some of its added tokens eat the blanks beside them")
    if described["model"].get("dropout"):
        raise ValueError("it has dropout: the same text would give other ids each time")
    found = BpeTokenizer(described, bos)
    for text in (_TOUCHSTONE, _TOUCHSTONE.strip()):
        if found.decode(found.encode(text.encode())) != text.encode():
            raise ValueError("it does not give text back as it was")
    if (found.byte_lengths() == 1).sum() < 256:
        raise ValueError("some single bytes have no token")
    return found


def _byte_table(model: tokenizers.Tokenizer, described: dict[str, Any], bos: int) -> list[bytes]:
    """The bytes of every id. ValueError when a token is not spelt in the byte-level alphabet."""
    alphabet = _alphabet()
    table = [b""] * (max(model.get_vocab().values()) + 1)
    for token, i in described["model"]["vocab"].items():
        try:
            table[i] = bytes(alphabet[character] for character in token)
        except KeyError:
            table[i] = token.encode()  # an added token, below, or `given` finds it out
    for token in described.get("added_tokens", []):
        table[token["id"]] = token["content"].encode()
    table[bos] = b""
    return table


def _alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself where it shows, else one from U+0100 on, in order."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


def plain_bytes(bos: int) -> str:
    """A tokenizers JSON of the bytes tokenizer: id = byte, BOS after them."""
    model = tokenizers.Tokenizer(models.BPE(vocab=_alphabet(), merges=[]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    model.decoder = decoders.ByteLevel()
    model.add_special_tokens([tokenizers.AddedToken(BOS, special=True, normalized=False)])
    assert model.token_to_id(BOS) == bos
    model.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)])
    return str(model.to_str(pretty=True)) + "\n"
