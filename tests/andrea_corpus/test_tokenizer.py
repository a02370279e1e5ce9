from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus.tokenizer import ByteTokenizer, load, token_dtype
from andrea_rundir.faults import BadConfig

TOKENIZER = ByteTokenizer()


@given(st.one_of(st.text().map(str.encode), st.binary()))
def test_bytes_round_trip(data: bytes) -> None:
    tokens = TOKENIZER.encode(data)
    assert tokens.dtype == np.uint16
    assert TOKENIZER.decode(tokens) == data
    assert TOKENIZER.byte_lengths()[tokens].sum() == len(data)


@pytest.mark.parametrize("text", ["", "\0", "e\u0301 👩‍👩‍👧 \U0010ffff", "\r\n\ufeff", "\u2028"])
def test_all_of_unicode_round_trips(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text.encode())).decode() == text


def test_every_code_point_round_trips() -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert TOKENIZER.decode(TOKENIZER.encode(text.encode())).decode() == text


def test_bos_decodes_to_nothing() -> None:
    assert TOKENIZER.decode(np.array([256, 65, 256, 66], np.int64)) == b"AB"
    assert TOKENIZER.byte_lengths()[256] == 0


def test_an_id_that_only_a_wider_model_has_is_shown_not_hidden() -> None:
    assert TOKENIZER.decode(np.array([65, 300, 66])).decode() == "A\ufffdB"


def test_the_digest_is_fixed_for_ever() -> None:
    assert TOKENIZER.digest == "1bdc71ebe7550029f1a756ef4a9e61d86a1129ac8e495a873219b6540671c343"


def test_what_is_written_loads(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(TOKENIZER.to_json())
    assert load(path).digest == TOKENIZER.digest


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "null", '{"kind": "bpe", "version": 1}', '{"kind": "bytes", "version": 2}', b"\xff"]
)
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(BadConfig) as error:
        load(path)
    assert error.value.where == str(path)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as error:
        load(tmp_path / "tokenizer.json")
    assert "andrea prepare RUN" in error.value.todo


def test_tokens_are_stored_in_the_narrowest_type_that_holds_them() -> None:
    assert token_dtype(65536) == np.dtype("<u2")
    assert token_dtype(65537) == np.dtype("<u4")
