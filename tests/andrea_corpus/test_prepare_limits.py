"""prepare where the disk is full, the process is killed, or a file is larger than what memory should hold."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from andrea_corpus.prepare import opened, prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir.faults import Refused
from andrea_rundir.names import RunDir
from harness.sources import PROSE, SUMS, WISH, Place


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
