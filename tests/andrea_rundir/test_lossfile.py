from __future__ import annotations

import errno
import inspect
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea_rundir.entries import GROWTH, Entry, encode, excerpt, latest, read, read_back
from andrea_rundir.lossfile import LossFile, Mark, digest


def entry(step: int, attempt: int = 1, **changes: Any) -> Entry:
    return {
        "step": step,
        "attempt": attempt,
        "loss": 0.1 * step,
        "ema": 1 / 3,
        "arms": {"prose": [3, 2.5, 901], "sums": [5, None, 77]},
        "lr": 3e-4,
        "grad_norm": None,
        "tokens": 256,
        "seconds": 0.01,
        "policy": "0-0123456789ab",
        "flags": ["skipped"],
        "time": f"2026-11-29T21:30:{step % 60:02d}.000Z",
    } | changes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".loss.json"


def test_it_is_an_array_from_the_first_instant(path: Path) -> None:
    loss = LossFile(path)
    assert json.loads(path.read_bytes()) == [] == list(read(path))
    assert path.stat().st_size == GROWTH and (loss.entries, loss.size) == (0, 1)
    for step in (1, 2, 3):
        loss.append([entry(step)])
        assert json.loads(path.read_bytes()) == list(read(path)) == [entry(s) for s in range(1, step + 1)]
    loss.close()
    again = LossFile(path)
    assert (again.entries, again.mark) == (loss.entries, loss.mark) and again.torn is None
    assert again.at(2) == entry(2) and again.at(4) is None and again.at(0) is None


def test_tools_read_it(path: Path) -> None:
    loss = LossFile(path)
    loss.append([entry(step) for step in range(1, 6)])
    loss.append([entry(3, 2, loss=9.0)])
    asked = subprocess.run(["jq", "-c", "[.[].step]", str(path)], capture_output=True, text=True, check=True)
    assert json.loads(asked.stdout) == [1, 2, 3, 4, 5, 3]
    assert [e["loss"] for e in latest(read(path)).values()] == [0.1, 0.2, 9.0, 0.4, 0.5]


def test_the_end_of_the_file_moves_by_whitespace_only(path: Path) -> None:
    """Every write either replaces `]` and spaces inside the file or appends nothing but spaces."""
    loss = LossFile(path)
    sizes = set()
    for step in range(1, 400):
        before = path.read_bytes()
        loss.append([entry(step)])
        now = path.read_bytes()
        kept = len(before.rstrip(b"] \n"))
        assert now[:kept] == before[:kept] and before[kept:].strip(b"\n] ") == b""
        assert now[-GROWTH:].strip(b" ") == b"", "who reads on past the end that he first saw finds no entry there"
        sizes.add(len(now))
    assert all(size % GROWTH == 0 for size in sizes) and len(sizes) == 2


def test_a_superseding_entry_is_the_one_in_force_and_both_are_known(path: Path) -> None:
    for loss in (LossFile(path), None, None):
        if loss is not None:
            loss.append([entry(1), entry(2)])
            loss.append([entry(1, 2, time="later"), entry(1, 3, time="last")])
        again = LossFile(path)
        assert again.at(1) == entry(1, 3, time="last") and again.at(2) == entry(2)
        assert all(again.knows(1, when) for when in (entry(1)["time"], "later", "last"))
        assert not again.knows(1, "never") and not again.knows(3, entry(3)["time"])


def test_history_may_begin_late_and_be_gone_back_on(path: Path) -> None:
    loss = LossFile(path)
    loss.append([entry(5001), entry(5003), entry(4990)])
    for file in (loss, LossFile(path)):
        assert [step for step in range(4980, 5010) if file.at(step)] == [4990, 5001, 5003]
        assert file.last_step == 5003


def test_reading_back_begins_with_the_newest(path: Path) -> None:
    assert list(read_back(path)) == []
    loss = LossFile(path)
    assert list(read_back(path)) == []
    loss.append([entry(step) for step in range(1, 2001)])
    assert next(read_back(path))["step"] == 2000
    assert list(read_back(path)) == list(read(path))[::-1]
    path.write_bytes(path.read_bytes().rstrip()[:-20])  # torn
    assert next(read_back(path))["step"] == 1999


def test_nan_is_refused(path: Path) -> None:
    loss = LossFile(path)
    with pytest.raises(ValueError):
        loss.append([entry(1), entry(2, loss=float("nan"))])
    assert json.loads(path.read_bytes()) == []


CUTS: dict[str, Callable[[bytes], bytes]] = {
    "the last page is zeros": lambda data: data[:700] + b"\0" * (len(data) - 700),
    "the last page is spaces": lambda data: data[:700] + b" " * (len(data) - 700),
    "the end is missing": lambda data: data[:1000],
    "] is missing": lambda data: data.replace(b"\n]", b"\n "),
    "a comma and no entry": lambda data: data.replace(b"\n]", b",\n]"),
    "a page in the middle": lambda data: data[:700] + b" " * 300 + data[1000:],
    "a number is broken": lambda data: data.replace(b'"tokens":256', b'"tokens":2x6', 3).replace(b"2x6", b"256", 2),
    "no comma": lambda data: data.replace(b"},\n", b"} \n", 1),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_torn_file_is_cut_after_its_last_whole_entry(name: str, path: Path) -> None:
    loss = LossFile(path)
    loss.append([entry(step) for step in range(1, 9)])
    loss.close()
    path.write_bytes(CUTS[name](path.read_bytes()))
    again = LossFile(path)
    assert again.torn is not None
    kept = json.loads(path.read_bytes())
    assert kept == [entry(step) for step in range(1, again.entries + 1)] and again.entries < 9
    again.append([entry(step) for step in range(again.entries + 1, 9)])
    assert json.loads(path.read_bytes()) == [entry(step) for step in range(1, 9)]
    assert LossFile(path).torn is None


def test_what_is_no_array_is_kept_beside_and_begun_anew(path: Path) -> None:
    path.write_bytes(b"not ours\n" * 10)
    loss = LossFile(path)
    assert loss.torn is not None and json.loads(path.read_bytes()) == []
    assert path.with_name(".loss.json.torn").read_bytes().startswith(b"not ours")


@pytest.mark.parametrize("good", [0, 2])
def test_a_repetition_of_nothing_is_no_entry(good: int, path: Path) -> None:
    before = [entry(step) for step in range(1, good + 1)]
    lines = [encode(one) for one in [*before, entry(good + 1, attempt=3)]]
    path.write_bytes(b"[\n" + b",\n".join(lines) + b"\n]")
    loss = LossFile(path)
    assert loss.torn is not None and loss.entries == good
    loss.append([entry(good + 1)])
    assert json.loads(path.read_bytes()) == [*before, entry(good + 1)]


def test_a_mark_names_a_part_of_the_history(path: Path) -> None:
    loss = LossFile(path)
    loss.append([entry(1), entry(2)])
    mark = loss.mark
    loss.append([entry(3)])
    again = LossFile(path, mark)
    assert again.believed and again.mark == loss.mark and list(again.since(mark.size)) == [entry(3)]
    assert digest(path, mark.size) == mark.digest and digest(path, 10**9) is None
    empty = LossFile(path.with_name("empty.json")).mark
    assert LossFile(path, empty).believed and list(again.since(empty.size)) == [entry(s) for s in (1, 2, 3)]
    assert not LossFile(path, Mark(mark.size - 1, mark.digest)).believed
    assert not LossFile(path, Mark(10**9, mark.digest)).believed
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"tokens":256', b'"tokens":257', 1))
    changed = LossFile(path, mark)
    assert not changed.believed and changed.entries == 3


@given(st.lists(st.lists(st.integers(1, 40), max_size=5), max_size=8), st.integers(0, 3000))
@settings(max_examples=60, deadline=None)
def test_any_history_cut_anywhere_is_a_prefix(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("loss") / ".loss.json"
    loss, made, count = LossFile(path), list[Entry](), dict[int, int]()
    marks = [loss.mark]
    for batch in batches:
        new = []
        for step in batch:
            count[step] = count.get(step, 0) + 1
            new.append(entry(step, count[step], time=f"{step}/{count[step]}"))
        loss.append(new)
        marks.append(loss.mark)
        made += new
    assert json.loads(path.read_bytes()) == made
    for mark in marks:  # whoever believes the beginning sees what one sees who reads it
        believing = LossFile(path, mark)
        assert believing.believed and believing.torn is None and believing.mark == loss.mark
        assert (believing.entries, believing.last_step) == (loss.entries, loss.last_step)
        assert {step: believing.at(step) for step in count} == latest(made)
        assert all(believing.knows(one["step"], one["time"]) for one in made)
    with path.open("r+b") as file:
        file.truncate(cut)
    kept = list(read(path))
    again = LossFile(path)
    assert json.loads(path.read_bytes()) == kept == made[: len(kept)] and again.entries == len(kept)
    assert {step: e for step in count if (e := again.at(step))} == latest(kept)


def test_a_full_disk_adds_nothing_and_breaks_nothing(path: Path) -> None:
    loss, full = LossFile(path), 3 * GROWTH
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, before[1]))
    try:
        step = 0
        with pytest.raises(OSError) as caught:
            while True:
                step += 1
                loss.append([entry(step)])
        assert caught.value.errno == errno.EFBIG
        assert json.loads(path.read_bytes()) == [entry(s) for s in range(1, step)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    loss.append([entry(step)])
    assert json.loads(path.read_bytes()) == [entry(s) for s in range(1, step + 1)]


def test_after_a_failed_fsync_the_file_is_written_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, real, failed = LossFile(path), os.fsync, list[int]()
    loss.append([entry(1)])
    inode = path.stat().st_ino

    def fail_once(fd: int) -> None:
        if not failed:
            failed.append(fd)
            raise OSError(errno.EIO, "no")
        real(fd)

    monkeypatch.setattr(os, "fsync", fail_once)
    loss.sync()
    loss.append([entry(2)])
    assert path.stat().st_ino != inode and json.loads(path.read_bytes()) == [entry(1), entry(2)]


def test_readers_beside_a_thousand_appends_a_second(path: Path) -> None:
    """Each finds the whole array: at once, or, where its read met the very write, when it reads again (ADR 9)."""
    loss, stop, reads, failed = LossFile(path), threading.Event(), [0], list[str]()

    def look() -> None:
        while not stop.is_set():
            try:
                found = read_twice(path, [])
                assert [e["step"] for e in found] == list(range(1, len(found) + 1))
                reads[0] += 1
            except Exception as error:
                failed.append(repr(error))
                return

    reader = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(reader, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        beside = threading.Thread(target=look)
        beside.start()
        began = time.monotonic()
        for step in range(1, 2001):
            loss.append([entry(step)])
            time.sleep(max(0.0, began + step / 1000 - time.monotonic()))
        stop.set()
        beside.join()
        counted, met = map(int, other.communicate(b"\n")[0].split())
    assert failed == [] and reads[0] > 10 and counted > 10
    assert met <= 2 + counted // 100, "reads that meet a write are rare"


def read_twice(path: Path, again: list[int]) -> list[Entry]:
    """The array; where a read met the very write, what it saw must be a beginning of what the next one finds whole."""
    seen = path.read_bytes()
    try:
        found: list[Entry] = json.loads(seen)
    except ValueError:
        again.append(len(seen))
        end = len(seen.partition(b"\n]")[0].rstrip(b" \n"))
        later = path.read_bytes()
        assert later[:end] == seen[:end]
        found = json.loads(later)
    return found


READER = f"""
import json, select, sys
from pathlib import Path
from andrea_rundir.entries import Entry
{inspect.getsource(read_twice)}
n, again = 0, []
while not select.select([sys.stdin], [], [], 0)[0]:
    read_twice(Path(sys.argv[1]), again)
    n += 1
print(n, len(again))
"""


def test_old_bytes_never_change_through_50_kills(path: Path) -> None:
    """A writer in a fork is killed -9 at random instants; what was whole before stays, byte for byte."""
    before = b""
    LossFile(path).close()
    for kill in range(50):
        child = os.fork()
        if child == 0:
            loss = LossFile(path)
            step = loss.last_step
            while True:
                step += 1
                loss.append([entry(step)])
        time.sleep(0.004 + 0.0007 * (kill * 7 % 11))
        os.kill(child, 9)
        os.waitpid(child, 0)
        now = path.read_bytes()
        assert sha256(now[: len(before)]).digest() == sha256(before).digest()
        found = json.loads(now)
        assert [e["step"] for e in found] == list(range(1, len(found) + 1))
        before = now.rstrip(b"] \n")
    assert len(found) > 100


def test_an_excerpt_is_a_file_of_the_same_bytes_that_goes_on(path: Path, tmp_path: Path) -> None:
    loss, other = LossFile(path), tmp_path / "other.json"
    loss.append([entry(1), entry(2), entry(2, 2), entry(3)])
    path.write_bytes(path.read_bytes().replace(b'"ema":0.3333333333333333', b'"ema":0.33333333333333330'))  # as it was
    for wanted in ([], [1], [1, 2, 2]):
        other.write_bytes(excerpt(path, lambda e, steps=wanted: e["step"] in steps))
        assert [e["step"] for e in json.loads(other.read_bytes())] == wanted
        lines = other.read_bytes().rstrip(b" \n]").split(b",\n") if wanted else []
        assert path.read_bytes().startswith(b",\n".join(lines))
    again = LossFile(other)
    assert again.torn is None and again.entries == 3
    again.append([entry(3)])
    assert [e["step"] for e in json.loads(other.read_bytes())] == [1, 2, 2, 3]
    torn = path.read_bytes().rstrip(b" \n]")[:-20]
    path.write_bytes(torn)
    assert len(json.loads(excerpt(path, lambda e: True))) == 3


def test_encoding_puts_step_and_attempt_first() -> None:
    shuffled = dict(reversed(entry(7).items()))
    assert encode(shuffled).startswith(b'{"step":7,"attempt":1,') and json.loads(encode(shuffled)) == entry(7)
