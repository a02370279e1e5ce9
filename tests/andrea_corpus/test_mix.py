from pathlib import Path

import pytest

from andrea_corpus import mix
from andrea_corpus.mix import Learn, copies, sampled
from andrea_corpus.text import Piece
from andrea_rundir.policy import Policy, parse

LONG_RUN = Learn(vocab_size=300, steps=1000, tokens=10_000)


def policy(extra: str = "") -> Policy:
    return parse(f'[arms.a]\npath = "a"\n{extra}\n[arms.b]\npath = "b"\n', "policy", Path("/"))


def test_arms_count_as_the_model_will_eat_them_not_by_their_length() -> None:
    lengths = {"a": 1000, "b": 9000}
    assert copies(policy(), lengths, LONG_RUN) == pytest.approx({"a": 5.0, "b": 5 / 9})
    assert copies(policy("prior = 3.0"), lengths, LONG_RUN) == pytest.approx({"a": 7.5, "b": 2.5 / 9})


def test_an_epoch_limit_holds_here_too() -> None:
    times = copies(policy("max_epochs = 2.0"), {"a": 1000, "b": 9000}, LONG_RUN)
    eaten = times["a"] * 1000, times["b"] * 9000
    assert sum(eaten) == pytest.approx(10_000)
    assert eaten[0] / eaten[1] == pytest.approx(2000 / (1000 * 10_000 * mix.BYTES_A_TOKEN - 2000))


def test_not_more_than_a_bounded_amount_is_looked_at() -> None:
    huge = {"a": 10**12, "b": 10**12}
    assert sum(n * huge[arm] for arm, n in copies(policy(), huge, LONG_RUN).items()) == pytest.approx(mix.MOST)


@pytest.mark.parametrize("times", [0.1, 0.25, 1.0, 2.5])
def test_pieces_are_taken_evenly_from_all_of_the_text(times: float) -> None:
    pieces = [Piece(str(i).encode(), False) for i in range(200)]
    taken = [int(text) for text in sampled(pieces, times)]
    assert len(taken) == pytest.approx(200 * times, abs=1)
    assert taken == sorted(taken)
    for start in range(0, 200, 40):
        assert sum(start <= i < start + 40 for i in taken) == pytest.approx(40 * times, abs=1)
    assert max(taken) >= 200 - max(1, 1 / times) - 1


def test_words_and_gaps_without_end_are_shortened() -> None:
    text = "a" * 3000 + " b\n" + " " * 3000 + "c" * 256
    assert list(sampled([Piece(text.encode(), True)], 1.0)) == ["a" * 256 + " b\n" + " " * 255 + "c" * 256]
