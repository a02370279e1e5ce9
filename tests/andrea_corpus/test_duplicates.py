from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus import duplicates
from andrea_corpus.duplicates import Duplicates


def digest(text: object) -> bytes:
    return sha256(repr(text).encode()).digest()


ARMS = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 8), min_size=1), min_size=1)


@given(ARMS)
def test_documents_of_other_arms_are_counted(arms: dict[str, list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "FRESH", 3)
        found = Duplicates()
        for arm, texts in arms.items():
            for text in texts:
                found.add(arm, digest(text))
        expected = {
            arm: sum(any(text in texts for other, texts in arms.items() if other != arm) for text in mine)
            for arm, mine in arms.items()
        }
        assert found.shared() == expected
        assert found.halvings == 0


def test_past_the_limit_a_part_speaks_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MOST", 2000)
    monkeypatch.setattr(duplicates, "FRESH", 500)
    found = Duplicates()
    for i in range(20_000):
        found.add("a", digest(i))
        found.add("b", digest(i + 15_000))
    shared = found.shared()
    assert found.halvings >= 4
    assert shared["a"] == shared["b"] == pytest.approx(5000, rel=0.2)


def test_many_copies_of_one_text_do_not_use_up_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MOST", 100)
    monkeypatch.setattr(duplicates, "FRESH", 50)
    found = Duplicates()
    for _ in range(1000):
        found.add("a", digest("the same"))
    found.add("b", digest("the same"))
    assert found.shared() == {"a": 1000, "b": 1}
    assert found.halvings == 0
