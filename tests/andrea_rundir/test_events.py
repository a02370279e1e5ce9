"""The readers of events, whatever lies in the folder."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir.eventlog import EventLog, encode
from andrea_rundir.events import Event, Tail, heads, read, read_back, segments

Traced = Callable[..., tuple[int, str, list[str]]]


def steps(found: list[Event]) -> list[int]:
    return [event["step"] for event in found]


def good(step: int, pad: int = 0) -> bytes:
    return encode("step", 0.0, {"step": step, "pad": "x" * pad})


def test_no_folder_has_no_events(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    assert segments(folder) == []
    assert list(read(folder)) == list(read_back(folder)) == Tail(folder).poll() == []


def test_other_files_are_no_segments(tmp_path: Path) -> None:
    for name in ("000001.jsonl", "1.jsonl", "000002.jsonl.gz", "000003.json", ".000004.jsonl.7.tmp"):
        (tmp_path / name).touch()
    assert [path.name for path in segments(tmp_path)] == ["000001.jsonl"]


@pytest.mark.parametrize("bad", [b"{\n", b"\n", b"[]\n", b"7\n", b"{}\n", b'{"event":3}\n', b"\0\0\0\n", b"\xff\xfe\n"])
def test_a_corrupt_line_is_told_and_the_rest_is_read(tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "000001.jsonl").write_bytes(good(1) + bad + good(2) + b'{"torn')
    (tmp_path / "000002.jsonl").write_bytes(good(3))
    unreadable = {"event": "unreadable", "segment": "000001.jsonl", "line": 2}
    one, two, three = (json.loads(good(step)) for step in (1, 2, 3))
    assert list(read(tmp_path)) == Tail(tmp_path).poll() == [one, unreadable, two, three]
    assert list(read_back(tmp_path)) == [three, two, {**unreadable, "line": -2}, one]


def test_heads_are_what_every_process_said_first_and_what_came_before_one_is_read_back(tmp_path: Path) -> None:
    for begin in (0, 10, 20):
        log = EventLog(tmp_path / "events")
        for number in range(begin, begin + 3):
            log.append("step", step=number)
        log.close()
    folder = tmp_path / "events"
    assert [(number, event["step"]) for number, event in heads(folder)] == [(1, 0), (2, 10), (3, 20)]
    assert steps(list(read_back(folder, before=3))) == [12, 11, 10, 2, 1, 0]
    assert list(read_back(folder, before=1)) == []
    (folder / "000003.jsonl").write_bytes(b'{"event":"step","st')
    assert [number for number, _ in heads(folder)] == [1, 2]
    assert list(heads(tmp_path / "none")) == []


@given(st.lists(st.lists(st.integers(0, 300), max_size=12), max_size=4), st.booleans(), st.integers(1, 400))
def test_read_back_is_read_in_reverse_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory, layout: list[list[int]], torn: bool, block: int
) -> None:
    folder = tmp_path_factory.mktemp("events")
    for number, pads in enumerate(layout, start=1):
        content = b"".join(good(step, pad) for step, pad in enumerate(pads))
        (folder / f"{number:06d}.jsonl").write_bytes(content + (good(99)[:-1] if torn else b""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("andrea_rundir.lines.BLOCK", block)
        assert list(read_back(folder)) == list(read(folder))[::-1]
    assert Tail(folder).poll() == list(read(folder))
    assert len(list(read(folder))) == sum(map(len, layout))


def test_the_newest_event_of_a_long_history_costs_one_block(tmp_path: Path, traced: Traced) -> None:
    (tmp_path / "000001.jsonl").write_bytes(b"".join(good(step, 300) for step in range(20_000)))
    code = f"""
from pathlib import Path
from andrea_rundir.events import read_back
assert next(read_back(Path({str(tmp_path)!r})))["step"] == 19_999
"""
    status, output, calls = traced(code, "read")
    assert status == 0, output
    assert sum(int(c.rpartition("= ")[2]) for c in calls if "000001.jsonl" in c) <= 65536


def test_a_tail_gives_each_event_once_and_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    tail, path = Tail(tmp_path), tmp_path / "000001.jsonl"
    for before, after, expected in (
        (b"", good(1) + good(2)[:10], [1]),
        (good(1) + good(2)[:10], b"", []),
        (good(1) + good(2)[:10], good(2)[10:-1], []),
        (good(1) + good(2)[:-1], good(2)[-1:] + good(3), [2, 3]),
    ):
        path.write_bytes(before + after)
        assert steps(tail.poll()) == expected
    path.write_bytes(good(1) + good(2) + good(3) + good(4) + b'{"torn":')
    (tmp_path / "000002.jsonl").touch()
    assert steps(tail.poll()) == [4]
    (tmp_path / "000002.jsonl").write_bytes(good(5))
    (tmp_path / "000003.jsonl").write_bytes(good(6))
    assert steps(tail.poll()) == [5, 6]
    assert tail.poll() == []


def test_a_tail_whose_segment_is_gone_goes_on_with_newer_ones(tmp_path: Path) -> None:
    (tmp_path / "000001.jsonl").write_bytes(good(1))
    (tmp_path / "000002.jsonl").write_bytes(good(2))
    tail = Tail(tmp_path)
    assert steps(tail.poll()) == [1, 2]
    (tmp_path / "000002.jsonl").unlink()
    assert tail.poll() == []
    (tmp_path / "000003.jsonl").write_bytes(good(3))
    assert steps(tail.poll()) == [3]
    shutil.rmtree(tmp_path)
    assert tail.poll() == []


def test_a_tail_that_is_refused_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "000001.jsonl").write_bytes(good(1))
    (tmp_path / "000002.jsonl").mkdir()
    tail = Tail(tmp_path)
    assert steps(tail.poll()) == [1]
    with pytest.raises(IsADirectoryError):
        tail.poll()
    (tmp_path / "000002.jsonl").rmdir()
    (tmp_path / "000002.jsonl").write_bytes(good(2))
    assert steps(tail.poll()) == [2]


def test_a_tail_beside_a_busy_writer_misses_and_repeats_nothing(tmp_path: Path) -> None:
    log, tail, seen = EventLog(tmp_path, rotate=4000), Tail(tmp_path), list[int]()

    def work() -> None:
        for step in range(1500):
            log.append("step", step=step, pad="x" * (step % 97))
        log.append("stop", step=1500)

    writer = threading.Thread(target=work)
    writer.start()
    while not seen or seen[-1] != 1500:
        seen += steps(tail.poll())
    writer.join()
    assert seen == list(range(1501))
    assert len(segments(tmp_path)) > 10
