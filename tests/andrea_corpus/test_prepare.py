import gc
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from andrea_corpus.ledger import record
from andrea_corpus.mix import Learn
from andrea_corpus.prepare import opened, prepare
from andrea_corpus.reading import Progress
from andrea_corpus.shards import Shard, fingerprint_of, group_tokens, held_span
from andrea_corpus.tokenizer import ByteTokenizer, Tokens, load
from andrea_rundir.faults import BadConfig, Held, Refused
from andrea_rundir.names import RunDir
from andrea_rundir.policy import Policy, parse

PROSE = "The quick brown fox jumps over the lazy dog, naïvely.\n" * 100
SUMS = "".join(f"{i} + {i} = {2 * i}\r\n" for i in range(400))


class Place:
    """A run to be, its sources, and a policy over them."""

    def __init__(self, root: Path) -> None:
        self.texts, self.run = root / "texts", RunDir(root / "run")
        self.texts.mkdir()
        self.write("prose/1.txt", PROSE)
        self.write("prose/2.md", PROSE.upper())
        self.write("sums.txt", SUMS)
        self.text = f'[arms.prose]\npath = "{self.texts}/prose"\n[arms.sums]\npath = "{self.texts}/sums.txt"\n'

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.texts / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    @property
    def policy(self) -> Policy:
        return parse(self.text, "policy", self.texts)

    def prepare(
        self, progress: Callable[[Progress], None] = lambda _: None, *, held_out: float = 0.1
    ) -> dict[str, str]:
        made = prepare(self.run, self.policy, ByteTokenizer(), held_out=held_out, context=64, progress=progress)
        return {name: arm.fingerprint for name, arm in made.items()}

    def refused(self, progress: Callable[[Progress], None] = lambda _: None) -> BadConfig:
        with pytest.raises(BadConfig) as error:
            self.prepare(progress)
        return error.value

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.run.data.iterdir()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def joined(shard: Shard) -> Tokens:
    """The token stream that was taken apart."""
    tokens, train, held = [], shard.train, shard.held
    size, left = group_tokens(shard.meta.held_out), len(shard.train) + len(shard.held)
    for group in range(-(-left // size)):
        length = min(size, left)
        start, end = held_span(shard.fingerprint, shard.meta.held_out, group, length)
        rest = length - (end - start) - start
        tokens += [train[:start], held[: end - start], train[start : start + rest]]
        train, held, left = train[start + rest :], held[end - start :], left - length
    return np.concatenate(tokens)


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


Spoil = Callable[[Place], str]


def empty(place: Place) -> str:
    return str(place.write("sums.txt", ""))


def only_a_mark(place: Place) -> str:
    return str(place.write("sums.txt", "\ufeff"))


def not_utf8(place: Place) -> str:
    return f"{place.write('sums.txt', SUMS.encode() + b'caf' + bytes([0xE9]))}, byte {len(SUMS) + 3}"


def missing(place: Place) -> str:
    (place.texts / "sums.txt").unlink()
    return str(place.texts / "sums.txt")


def fifo(place: Place) -> str:
    os.mkfifo(missing(place))
    return str(place.texts / "sums.txt")


def loop(place: Place) -> str:
    (place.texts / "prose" / "again").symlink_to(place.texts / "prose")
    return str(place.texts / "prose" / "again")


def under_two_arms(place: Place) -> str:
    path = place.texts / "prose" / "sums.txt"
    path.hardlink_to(place.texts / "sums.txt")
    return f"{place.texts}/sums.txt (the same file as {path})"


def folder_without_text(place: Place) -> str:
    path = place.texts / "sums.txt"
    path.unlink()
    path.mkdir()
    (path / "a.png").write_bytes(b"\x89PNG")
    return str(path)


def strange_name(place: Place) -> str:
    path = place.write("sums.xyz", SUMS)
    place.text = place.text.replace("sums.txt", "sums.xyz")
    return str(path)


@pytest.mark.parametrize(
    "spoil",
    [empty, only_a_mark, not_utf8, missing, fifo, loop, under_two_arms, folder_without_text, strange_name],
)
def test_a_bad_source_is_named_and_nothing_is_created(place: Place, spoil: Spoil) -> None:
    where = spoil(place)
    assert place.refused().where == where
    assert not place.run.root.exists()


def test_an_arm_too_small_for_a_window_is_named_with_the_numbers_and_nothing_is_created(place: Place) -> None:
    place.write("sums.txt", "x" * 127)
    fault = place.refused()
    assert fault.what == "arm sums has too little text"
    assert fault.found == "128 tokens: 64 to train on, 64 held out"
    assert not place.run.root.exists()
    place.write("sums.txt", "x" * 129)
    assert opened(place.run, place.text if place.prepare() else "")["sums"].n_windows(64) == 1


def rewrite(path: Path) -> None:
    path.write_text(PROSE[:-2] + "!\n")


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


def blank(path: Path) -> None:
    os.truncate(path, 0)


def remove(path: Path) -> None:
    path.unlink()


def spoil_bytes(path: Path) -> None:
    path.write_bytes(b"\xff" * 5000)


@pytest.mark.parametrize("how", [rewrite, truncate, blank, remove, spoil_bytes])
@pytest.mark.parametrize("act", ["reading", "writing"])
def test_a_source_that_changes_while_it_is_read_is_named_and_no_shard_is_made_of_it(
    place: Place, how: Callable[[Path], None], act: str
) -> None:
    """In the first pass after its text went by, or in the second before it is read again."""
    path, done = place.texts / "sums.txt", False

    def change(progress: Progress) -> None:
        nonlocal done
        if not done and (progress.arm, progress.act) == ("prose" if act == "writing" else "sums", act):
            done = True
            how(path)

    fault = place.refused(change)
    assert str(path) in fault.where
    endings = sorted(name.partition(".")[2] for name in place.files())
    assert endings == ["held.bin", "json", "json", "train.bin"]  # the shard of prose, and tokenizer.json


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_refused_and_leaves_nothing_half_made(place: Place, small_disk: Path) -> None:
    place.run = RunDir(small_disk / "run")
    place.prepare()
    before = place.files()
    place.write("prose/3.txt", PROSE * 50)
    with pytest.raises(Refused) as error:
        place.prepare()
    assert error.value.found == "No space left on device"
    assert place.files() == before


def cut_gz(place: Place) -> str:
    path = place.write("sums.txt.gz", gzip.compress(SUMS.encode())[:-9])
    place.text = place.text.replace("sums.txt", "sums.txt.gz")
    return str(path)


def not_zst(place: Place) -> str:
    path = place.write("sums.txt.zst", gzip.compress(SUMS.encode()))
    place.text = place.text.replace("sums.txt", "sums.txt.zst")
    return str(path)


def cut_json(place: Place) -> str:
    line = json.dumps({"text": SUMS})
    path = place.write("sums.jsonl", f"{line}\n{line[:-3]}")
    place.text = place.text.replace("sums.txt", "sums.jsonl")
    return f"{path}, line 2"


def no_column(place: Place) -> str:
    path = place.texts / "sums.parquet"
    parquet.write_table(pyarrow.table({"body": [SUMS]}), path)
    place.text = place.text.replace("sums.txt", "sums.parquet")
    return str(path)


@pytest.mark.parametrize("spoil", [cut_gz, not_zst, cut_json, no_column])
def test_a_bad_packed_or_structured_source_is_named_and_nothing_is_created(place: Place, spoil: Spoil) -> None:
    where = spoil(place)
    assert place.refused().where == where
    assert not place.run.root.exists()


@pytest.mark.parametrize("how", [truncate, remove])
@pytest.mark.parametrize("name", ["sums.jsonl.gz", "sums.parquet"])
def test_a_packed_or_structured_source_that_changes_while_it_is_read_is_named(
    place: Place, name: str, how: Callable[[Path], None]
) -> None:
    path, done = place.texts / name, False
    if name.endswith(".gz"):
        place.write(
            name, gzip.compress("".join(json.dumps({"text": SUMS + str(i)}) + "\n" for i in range(50)).encode())
        )
    else:
        parquet.write_table(pyarrow.table({"text": [SUMS + str(i) for i in range(50)]}), path)
    place.text = place.text.replace("sums.txt", name)

    def change(progress: Progress) -> None:
        nonlocal done
        if not done and (progress.arm, progress.act) == ("prose", "writing"):
            done = True
            how(path)

    assert str(path) in place.refused(change).where
    assert len([file for file in place.files() if file.endswith(".bin")]) == 2  # the shard of prose


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


WISH = Learn(vocab_size=400, steps=100, tokens=512)


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


KILLED = """
import os, signal, sys
from pathlib import Path
from andrea_corpus.prepare import prepare
from andrea_corpus.shards import open_shard
from andrea_corpus.mix import Learn
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir.names import RunDir
from andrea_rundir.policy import parse
import andrea_corpus.bpe

run, text = RunDir(Path(sys.argv[1])), sys.argv[2]
tokenizer = Learn(vocab_size=400, steps=100, tokens=512) if sys.argv[3] else ByteTokenizer()
rules = parse(text, "policy", run.root)
calls = 0

def die_at(k):
    def hook(event, args):
        global calls
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock"):
            calls += 1
            if calls == k:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

k = 0
while True:
    k += 1
    child = os.fork()
    if child == 0:
        die_at(k)
        prepare(run, rules, tokenizer, held_out=0.1, context=64)
        os._exit(0)
    finished = os.waitpid(child, 0)[1] == 0
    for path in run.data.glob("*.json"):
        if "train_tokens" in path.read_text():
            open_shard(run.data, path.stem, arm="a")  # a shard that has its JSON is whole
    if finished:
        print(k)
        break
"""


def python(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("learned", [False, True])
def test_killed_at_any_file_operation_and_started_again_it_gives_the_same_shards(place: Place, learned: bool) -> None:
    rows = "".join(json.dumps({"text": f"{i} {SUMS}"}) + "\n" for i in range(3))
    place.write("sums.jsonl.gz", gzip.compress(rows.encode()))
    place.text = place.text.replace("sums.txt", "sums.jsonl.gz")
    tokenizer = WISH if learned else ByteTokenizer()
    prepare(place.run, place.policy, tokenizer, held_out=0.1, context=64)
    whole = place.files()
    place.run = RunDir(place.run.root.with_name("killed"))
    kills = int(python(KILLED, str(place.run.root), place.text, "learned" if learned else ""))
    assert kills > 10
    assert place.files() == whole


BOUNDED = """
import sys
from pathlib import Path
from andrea_corpus.prepare import prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir.names import RunDir
from andrea_rundir.policy import parse

def peak():  # not ru_maxrss: that begins with what the process had that started this one
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

before = peak()
run = RunDir(Path(sys.argv[1]))
prepare(run, parse(sys.argv[2], "policy", run.root), ByteTokenizer(), held_out=0.01, context=64)
print(peak() - before)
"""


def test_memory_does_not_grow_with_a_file_of_one_line(place: Place) -> None:
    os.truncate(place.write("sums.txt", "x"), 96 << 20)
    kilobytes = int(python(BOUNDED, str(place.run.root), place.text))
    assert kilobytes < 40_000
    assert opened(place.run, place.text)["sums"].meta.bytes == 96 << 20


def test_no_thread_or_file_is_left_behind(place: Place) -> None:
    gc.collect()  # what earlier tests left in the frames of their exceptions
    before = len(os.listdir("/proc/self/fd"))
    place.prepare()
    assert len(os.listdir("/proc/self/fd")) == before
    assert threading.active_count() == 1
