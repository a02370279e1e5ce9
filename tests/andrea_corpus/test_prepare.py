from __future__ import annotations

import gc
import gzip
import json
import os
import threading

import numpy as np
import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from andrea_corpus.ledger import record
from andrea_corpus.prepare import opened, prepare
from andrea_corpus.reading import Progress
from andrea_corpus.shards import fingerprint_of
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir.faults import BadConfig, Held
from andrea_rundir.policy import parse
from harness.sources import PROSE, SUMS, Place, joined


def test_every_document_stands_in_its_shard_after_a_bos(place: Place) -> None:
    fingerprints = place.prepare()
    shards = opened(place.run, place.text)
    assert {name: shard.fingerprint for name, shard in shards.items()} == fingerprints
    documents = np.split(joined(shards["prose"]), np.flatnonzero(joined(shards["prose"]) == 256))
    assert [ByteTokenizer().decode(one).decode() for one in documents] == ["", PROSE, PROSE.upper()]
    assert ByteTokenizer().decode(joined(shards["sums"])).decode() == SUMS.replace("\r\n", "\n")
    meta = shards["prose"].meta
    assert (meta.documents, meta.bytes, meta.replaced) == (2, 2 * len(PROSE.encode()), 0)
    assert meta.train_tokens + meta.held_tokens == meta.bytes + meta.documents


@settings(max_examples=12)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_tokens_decode_to_the_normalised_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    place = Place(tmp_path_factory.mktemp("p"))
    texts = [*texts, PROSE]
    for i, text in enumerate(texts):
        place.write(f"prose/{i}.txt", "x" + text)
    place.write("prose/2.md", "\ufeff.")
    place.prepare()
    expected = {f"{i}.txt": "x" + text for i, text in enumerate(texts)} | {"2.md": "."}
    expected = {"1.txt": PROSE} | expected
    got = ByteTokenizer().decode(joined(opened(place.run, place.text)["prose"]))
    assert got == "".join(expected[name] for name in sorted(expected)).replace("\r\n", "\n").encode()


def test_names_of_shards_are_fixed_for_ever(place: Place) -> None:
    """A new version must find the shards of a run in flight: these never change."""
    assert place.prepare() == {"prose": "f2c55c38ce555e16", "sums": "458183d5a745929b"}
    assert opened(place.run, place.text)["sums"].meta.train_sha256[:16] == "5a6bf94363e9cbbb"


def test_a_second_prepare_changes_nothing(place: Place) -> None:
    place.prepare()
    before = {path: path.stat().st_ino for path in place.run.data.iterdir() if path.suffix == ".bin"}
    acts: list[Progress] = []
    place.prepare(acts.append)
    assert {path: path.stat().st_ino for path in before} == before
    assert {progress.act for progress in acts} == {"reading"}


def test_a_changed_source_is_a_new_shard_beside_the_old_one(place: Place) -> None:
    old = place.prepare()
    files = place.files()
    place.write("prose/1.txt", PROSE + "more")
    new = place.prepare()
    assert new["prose"] != old["prose"]
    assert new["sums"] == old["sums"]
    assert {name: data for name, data in place.files().items() if name in files and name != "sources.json"} == {
        name: data for name, data in files.items() if name != "sources.json"
    }
    assert opened(place.run, place.text)["prose"].fingerprint == new["prose"]


def test_line_ends_and_byte_order_mark_do_not_make_a_new_shard_but_document_ends_do(place: Place) -> None:
    old = place.prepare()
    place.write("sums.txt", "\ufeff" + SUMS.replace("\r\n", "\n"))
    assert place.prepare() == old
    place.write("prose/1.txt", PROSE + PROSE.upper()[:5])
    place.write("prose/2.md", PROSE.upper()[5:])
    assert place.prepare()["prose"] != old["prose"]


def test_limits_may_change_without_a_new_prepare_and_sources_may_not(place: Place) -> None:
    place.prepare()
    assert opened(place.run, place.text + "cap = 0.5\n# a comment\n").keys() == {"prose", "sums"}
    for text in (place.text + 'errors = "replace"\n', place.text.replace("[arms.sums]", "[arms.numbers]")):
        with pytest.raises(BadConfig) as error:
            opened(place.run, text)
        assert error.value.todo == "run `andrea prepare RUN`"


def test_entries_of_other_policies_stay(place: Place) -> None:
    first = place.text
    place.prepare()
    place.text = place.text.partition("[arms.sums]")[0]
    place.prepare()
    assert opened(place.run, first).keys() == {"prose", "sums"}
    assert opened(place.run, place.text).keys() == {"prose"}
    record(place.run, parse(first.replace("texts", "moved"), "p", place.texts), {"prose": "a", "sums": "b"})
    assert opened(place.run, first).keys() == {"prose", "sums"}


def test_progress_tells_both_passes_of_every_arm(place: Place) -> None:
    acts: list[Progress] = []
    place.prepare(acts.append)
    assert [(p.arm, p.act) for p in acts if p.arm == "prose"] == [("prose", "reading")] * 2 + [("prose", "writing")] * 2
    assert [p.bytes for p in acts if p.arm == "prose"][-1] == acts[0].size == 2 * len(PROSE.encode())


def test_a_damaged_shard_is_reported_by_opened_and_mended_by_prepare(place: Place) -> None:
    fingerprint = place.prepare()["sums"]
    whole = place.files()
    path = place.run.data / f"{fingerprint}.train.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(BadConfig) as error:
        opened(place.run, place.text)
    assert "arm sums" in error.value.what
    place.prepare()
    assert place.files() == whole


def test_a_list_of_shards_that_cannot_be_read_is_named(place: Place) -> None:
    with pytest.raises(BadConfig) as error:
        opened(place.run, place.text)
    assert "not prepared" in error.value.what
    place.prepare()
    for text in ("", "[]", "{", '{"a": 1}'):
        (place.run.data / "sources.json").write_text(text)
        with pytest.raises(BadConfig) as error:
            opened(place.run, place.text)
        assert error.value.where == str(place.run.data / "sources.json")


def test_another_tokenizer_is_refused_by_both(place: Place) -> None:
    class Other(ByteTokenizer):
        def to_json(self) -> str:
            return super().to_json() + " "

    place.prepare()
    before = place.files()
    with pytest.raises(BadConfig, match="another tokenizer"):
        prepare(place.run, place.policy, Other(), held_out=0.1, context=64)
    assert place.files() == before
    data = place.run.data
    meta = next(path for path in sorted(data.glob("*.json")) if "train_tokens" in path.read_text())
    described = json.loads(meta.read_text())
    named = fingerprint_of("t", described["content"], 0.1)
    for part in ("train.bin", "held.bin"):
        (data / f"{described['fingerprint']}.{part}").rename(data / f"{named}.{part}")
    (data / f"{named}.json").write_text(json.dumps(described | {"fingerprint": named, "tokenizer": "t"}))
    entries = (data / "sources.json").read_text().replace(described["fingerprint"], named)
    (data / "sources.json").write_text(entries)
    with pytest.raises(BadConfig, match="another tokenizer"):
        opened(place.run, place.text)


def test_two_at_once_do_not_get_into_each_other_s_way(place: Place) -> None:
    met: list[Held] = []

    def second(progress: Progress) -> None:
        if progress.act == "writing" and not met:
            with pytest.raises(Held) as error:
                place.prepare()
            met.append(error.value)

    place.prepare(second)
    assert met[0].where == str(place.run.data)
    assert opened(place.run, place.text)


def test_every_format_gives_the_same_shard(place: Place) -> None:
    """The name of a file and its packing are not part of what it says."""
    texts, made = [PROSE, "", SUMS], {}
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    place.write("rows/a.jsonl", lines)
    place.write("rows/b.jsonl.zst", zstandard.ZstdCompressor().compress(lines.encode()))
    parquet.write_table(pyarrow.table({"text": texts}), place.texts / "rows" / "c.parquet")
    place.write("rows/d.parquet.gz", gzip.compress((place.texts / "rows" / "c.parquet").read_bytes()))
    place.write("plain/1.txt", PROSE)
    place.write("plain/2.md.gz", gzip.compress(SUMS.encode()))
    for path in ("rows/a.jsonl", "rows/b.jsonl.zst", "rows/c.parquet", "rows/d.parquet.gz", "plain"):
        place.text = f'[arms.a]\npath = "{place.texts}/{path}"\n'
        made[path] = place.prepare()["a"]
    assert len(set(made.values())) == 1


def test_what_no_text_can_hold_is_replaced_and_counted(place: Place) -> None:
    place.write("sums.jsonl", json.dumps({"text": "a\ud800b\udc00" + PROSE}) + "\n")
    place.text = place.text.replace("sums.txt", "sums.jsonl")
    place.prepare()
    meta = opened(place.run, place.text)["sums"].meta
    assert meta.replaced == 2 and meta.bytes == len(PROSE.encode()) + 8


def test_documents_that_stand_in_two_arms_are_counted(place: Place) -> None:
    place.write("sums.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in (SUMS, PROSE, PROSE, "x" * 99)))
    place.text = place.text.replace("sums.txt", "sums.jsonl")
    made = prepare(place.run, place.policy, ByteTokenizer(), held_out=0.1, context=64)
    assert {name: (arm.files, arm.shared, arm.estimated) for name, arm in made.items()} == {
        "prose": (2, 1, False),
        "sums": (1, 2, False),
    }


def test_no_thread_or_file_is_left_behind(place: Place) -> None:
    gc.collect()  # what earlier tests left in the frames of their exceptions
    before = len(os.listdir("/proc/self/fd"))
    place.prepare()
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == 1
