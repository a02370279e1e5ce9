import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from andrea_corpus import bpe, tokenizer
from andrea_corpus.bpe import given as given_file
from andrea_corpus.tokenizer import ByteTokenizer, check_fits, load
from andrea_rundir.faults import BadConfig

TEXTS = ["The quick brown fox jumps over the lazy dog. " * 20, "naïve café, 1234 + 5678\n\n\tindented " * 20]
LEARNED = bpe.learn(iter(TEXTS), 300)


def test_it_learns_pieces_after_256_bytes_and_bos() -> None:
    assert LEARNED.vocab_size == 300
    assert len(LEARNED.encode(TEXTS[0].encode())) < len(TEXTS[0]) / 2
    lengths = LEARNED.byte_lengths()
    assert lengths[LEARNED.bos] == 0 and (np.delete(lengths, LEARNED.bos) >= 1).all() and (lengths == 1).sum() >= 256
    assert LEARNED.encode(b"x").dtype == np.uint16


def test_the_same_texts_give_the_same_tokenizer() -> None:
    assert bpe.learn(iter(TEXTS), 300).digest == LEARNED.digest
    assert bpe.learn(iter(TEXTS[:1]), 300).digest != LEARNED.digest
    assert bpe.learn(iter(["ab"]), 2000).vocab_size < 2000


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_round_trips(text: str) -> None:
    tokens = LEARNED.encode(text.encode())
    assert LEARNED.decode(tokens) == text.encode()
    assert LEARNED.byte_lengths()[tokens].sum() == len(text.encode())
    assert LEARNED.bos not in tokens


def test_every_code_point_round_trips() -> None:
    """All of the two planes that text lives in, and every seventeenth of the others."""
    points = [chr(i) for i in [*range(0xD800), *range(0xE000, 0x20000), *range(0x20000, 0x110000, 17)]]
    texts = ["".join(points[i : i + 64]).encode() for i in range(0, len(points), 64)]
    assert LEARNED.decode(np.concatenate(LEARNED.encode_many(texts))) == b"".join(texts)


@pytest.mark.parametrize("text", ["", "\0\0", "<|bos|>", "a <|bos|>b<|bos|>", "\r\n\ufeff\u2028", "e\u0301 👩‍👩‍👧"])
def test_nothing_in_a_text_is_special(text: str) -> None:
    tokens = LEARNED.encode(text.encode())
    assert LEARNED.decode(tokens) == text.encode()
    assert LEARNED.bos not in tokens


def test_many_at_once_are_each_as_alone() -> None:
    texts = [text.encode() for text in [*TEXTS, "", "x"]]
    for one, many in zip(map(LEARNED.encode, texts), LEARNED.encode_many(texts), strict=True):
        np.testing.assert_array_equal(one, many)


def test_bos_decodes_to_nothing_and_what_a_wider_model_draws_is_shown() -> None:
    a = int(LEARNED.encode(b"a")[0])
    assert LEARNED.decode(np.array([LEARNED.bos, a, 9999, a])) == "a\ufffda".encode()


def test_what_is_written_loads(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(LEARNED.to_json())
    found = load(path)
    assert found.digest == LEARNED.digest
    np.testing.assert_array_equal(found.encode(b"quick"), LEARNED.encode(b"quick"))
    spoilt = json.loads(LEARNED.to_json())
    del spoilt["tokenizers"]["model"]["vocab"]
    path.write_text(json.dumps(spoilt))
    with pytest.raises(BadConfig, match="damaged"):
        load(path)


@pytest.mark.parametrize("ours", [LEARNED, ByteTokenizer()])
@pytest.mark.parametrize("text", ["the quick dog", " two  blanks\n", "naïve \U0001f600\0", "\u0130 \ufb01"])
def test_the_exported_file_gives_a_stranger_the_same_ids(ours: tokenizer.Tokenizer, text: str) -> None:
    theirs = Tokenizer.from_str(ours.exported())
    ids = theirs.encode(text).ids
    assert ids == [ours.bos, *ours.encode(text.encode()).tolist()]
    assert theirs.decode(ids) == text


def test_an_exported_tokenizer_is_one_that_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(LEARNED.exported())
    assert given_file(path).digest == LEARNED.digest
    path.write_text(ByteTokenizer().exported())
    found = given_file(path)
    assert (found.vocab_size, found.bos) == (257, 256)
    np.testing.assert_array_equal(found.encode(b"a\xc3\xa9"), ByteTokenizer().encode(b"a\xc3\xa9"))


def foreign(**changes: Any) -> str:
    """A tokenizers JSON made elsewhere, with one thing or other about it changed."""
    model = Tokenizer(changes.get("model", models.BPE()))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=changes.get("prefix", False))
    if "normalizer" in changes:
        model.normalizer = changes["normalizer"]
    if changes.get("model") is None:
        model.train_from_iterator(
            TEXTS,
            trainers.BpeTrainer(
                vocab_size=300,
                special_tokens=changes.get("special", ["<|endoftext|>"]),
                initial_alphabet=changes.get("alphabet", pre_tokenizers.ByteLevel.alphabet()),
                show_progress=False,
            ),
        )
    if changes.get("added"):
        model.add_tokens([tokenizers.AddedToken("quick", **changes["added"])])
    return str(model.to_str())


def test_a_tokenizer_from_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(foreign(added={"normalized": False}))
    found = given_file(path)
    assert found.bos == 0 and found.decode(found.encode(b"a quick <|endoftext|>")) == b"a quick <|endoftext|>"


SPOILT = {
    "not JSON": "{",
    "no tokenizer": "[]",
    "words": foreign(model=models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")),
    "lowers case": foreign(normalizer=normalizers.Lowercase()),
    "composes": foreign(normalizer=normalizers.NFC()),
    "adds a blank": foreign(prefix=True),
    "no special token": foreign(special=[]),
    "none that opens": foreign(special=["<pad>"]),
    "bytes missing": foreign(alphabet=[]),
    "dropout": foreign().replace('"dropout":null', '"dropout":0.1'),
    "eats blanks": foreign(added={"lstrip": True, "rstrip": True}),
}


@pytest.mark.parametrize("name", SPOILT)
def test_one_that_does_not_keep_the_promise_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(SPOILT[name])
    with pytest.raises(BadConfig) as error:
        given_file(path)
    assert error.value.where == str(path) and error.value.found and error.value.todo


def test_a_missing_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="No such file"):
        given_file(tmp_path / "none.json")


def test_one_that_is_too_large_for_a_model_is_refused() -> None:
    check_fits(LEARNED, 300, "run.toml")
    with pytest.raises(BadConfig, match="300 tokens"):
        check_fits(LEARNED, 299, "run.toml")


def test_the_byte_alphabet_is_the_library_s() -> None:
    assert sorted(bpe._alphabet()) == sorted(pre_tokenizers.ByteLevel.alphabet())
