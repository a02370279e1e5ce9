"""prepare with a tokenizer that is learned from the run's own texts."""

from __future__ import annotations

from itertools import groupby

import pytest

from andrea_corpus.mix import Learn
from andrea_corpus.prepare import opened, prepare
from andrea_corpus.reading import Progress
from andrea_corpus.tokenizer import ByteTokenizer, load
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from harness.sources import PROSE, SUMS, WISH, Place, joined


def test_a_learned_tokenizer_gives_shards_that_decode_to_the_text(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("andrea_corpus.encoding._BATCH", 4000)
    acts: list[Progress] = []
    prepare(place.run, place.policy, WISH, held_out=0.1, context=16, vocab_size=400, progress=acts.append)
    assert [act for act, _ in groupby(p.act for p in acts if p.arm == "prose")] == ["reading", "learning", "writing"]
    assert acts[-1].tokens > 0
    tokenizer = load(place.run.data / "tokenizer.json")
    for name, text in (("prose", PROSE + PROSE.upper()), ("sums", SUMS.replace("\r\n", "\n"))):
        shard = opened(place.run, place.text)[name]
        assert tokenizer.decode(joined(shard)).decode() == text
        assert shard.meta.train_tokens + shard.meta.held_tokens < len(text) * 0.7


def test_a_run_keeps_its_tokenizer_whatever_is_wished_for_later(place: Place) -> None:
    prepare(place.run, place.policy, WISH, held_out=0.1, context=16)
    before = place.files()
    place.write("prose/3.txt", "entirely other words " * 500)
    prepare(place.run, place.policy, WISH, held_out=0.1, context=16)
    assert place.files()["tokenizer.json"] == before["tokenizer.json"]
    with pytest.raises(BadConfig, match="another tokenizer"):
        prepare(place.run, place.policy, ByteTokenizer(), held_out=0.1, context=16)
    with pytest.raises(BadConfig, match="does not fit the model"):
        prepare(place.run, place.policy, WISH, held_out=0.1, context=16, vocab_size=399)


def test_what_is_fed_more_gets_more_of_the_vocabulary(place: Place) -> None:
    def length(limits: str) -> int:
        place.run = RunDir(place.run.root.with_name(f"run{len(limits)}"))
        place.text = place.text.partition("floor")[0].partition("cap")[0] + limits
        prepare(place.run, place.policy, Learn(290, 100, 512), held_out=0.1, context=16)
        return opened(place.run, place.text)["sums"].meta.train_tokens

    assert length("floor = 0.98\n") < length("cap = 0.01\n")
