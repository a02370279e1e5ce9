"""The writer of events: on full disks, after failed syncs, killed."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir.eventlog import EventLog, encode
from andrea_rundir.events import Event, Tail, read, read_back, segments

Mount = Callable[..., Path]
Traced = Callable[..., tuple[int, str, list[str]]]


def steps(found: list[Event]) -> list[int]:
    return [event["step"] for event in found]


def lines(folder: Path, number: int) -> list[bytes]:
    return (folder / f"{number:06d}.jsonl").read_bytes().splitlines(keepends=True)


# --- one event ---------------------------------------------------------------------------------------------


def test_a_line_is_compact_json_with_kind_and_time_first() -> None:
    line = encode("step", 1796074207.1234, {"step": 5, "loss": 0.1, "flags": []})
    assert line == b'{"event":"step","time":"2026-11-30T21:30:07.123Z","step":5,"loss":0.1,"flags":[]}\n'
    assert encode("stop", 1796074207.0, {}) == b'{"event":"stop","time":"2026-11-30T21:30:07.000Z"}\n'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [0.0, math.nan], {"a": math.inf}])
def test_what_is_no_json_number_is_refused(tmp_path: Path, value: object) -> None:
    log = EventLog(tmp_path / "events")
    with pytest.raises(ValueError, match="Out of range"):
        log.append("step", loss=value)
    assert log.waiting == 0
    assert list(read(tmp_path / "events")) == []


def test_kind_and_time_are_not_fields(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fields"):
        EventLog(tmp_path / "events").append("step", time="now")


plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda name: name not in ("event", "time", "kind")), plain, max_size=4))
def test_fields_are_read_back_bit_for_bit_from_one_line(fields: dict[str, object]) -> None:
    line = encode("x", 0.0, fields)
    assert line.count(b"\n") == 1
    event = json.loads(line)
    del event["event"], event["time"]
    assert repr(event) == repr(fields)


def test_lone_surrogates_are_text_that_every_reader_takes() -> None:
    line = encode("audit", 0.0, {"text": "é\ud800"})
    assert line.decode("utf-8").endswith('"text":"é\\ud800"}\n')
    assert json.loads(line)["text"] == "é\ud800"


# --- writing -----------------------------------------------------------------------------------------------


def test_an_event_can_be_read_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events", clock=lambda: 0.0)
    log.append("step", step=1)
    assert list(read(tmp_path / "events")) == [{"event": "step", "time": "1970-01-01T00:00:00.000Z", "step": 1}]


def test_every_writer_starts_a_segment_and_an_idle_one_leaves_none(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    for step in (1, 2):
        log = EventLog(folder)
        log.append("step", step=step)
        assert log.close()
    assert EventLog(folder).close()
    assert [path.name for path in segments(folder)] == ["000001.jsonl", "000002.jsonl"]
    (folder / "999999.jsonl").touch()
    tail = Tail(folder)
    assert steps(tail.poll()) == [1, 2]
    log = EventLog(folder)
    log.append("step", step=3)
    assert steps(tail.poll()) == [3]
    assert [path.name for path in segments(folder)][-2:] == ["999999.jsonl", "1000000.jsonl"]
    assert steps(list(read(folder))) == [1, 2, 3]


def test_a_full_segment_is_followed_by_the_next(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rotate=200)
    for step in range(20):
        log.append("step", step=step)
    sizes = [path.stat().st_size for path in segments(tmp_path)]
    assert len(sizes) > 3
    assert all(200 <= size < 300 for size in sizes[:-1])
    assert steps(list(read(tmp_path))) == list(range(20))
    assert log.sync()


def test_a_segment_has_a_durable_name_before_it_has_a_line(tmp_path: Path, traced: Traced) -> None:
    code = f"""
from pathlib import Path
from andrea_rundir.eventlog import EventLog
log = EventLog(Path({str(tmp_path / "events")!r}))
for step in range(4):
    log.append("step", step=step)
    if step % 2:
        assert log.sync()
"""
    status, output, calls = traced(code, "mkdir,write,fsync")
    assert status == 0, output
    folder, file = f"<{tmp_path}/events>)", f"<{tmp_path}/events/000001.jsonl>"
    assert "mkdir" in calls[0]
    assert f"<{tmp_path}>)" in calls[1]
    kinds = ["folder" if folder in c else c.partition("(")[0] for c in calls[2:] if folder in c or file in c]
    assert kinds == ["folder", "write", "write", "fsync", "write", "write", "fsync"]


# --- a full disk -------------------------------------------------------------------------------------------


def test_a_full_disk_loses_nothing_and_keeps_the_order(mount: Mount, fill: Callable[[Path], Path]) -> None:
    folder = mount("tmpfs", "size=1m") / "events"
    log = EventLog(folder, limit=20_000)
    log.append("step", step=0)
    assert log.sync()
    ballast = fill(folder.parent)
    step = 0
    while not log.full:
        step += 1
        log.append("step", step=step, text="x" * 50)
    assert log.waiting >= 20_000
    assert log.trouble is not None
    assert "No space left" in log.trouble
    assert str(log.waiting) in log.trouble
    assert not log.flush()
    assert not log.sync()
    before = steps(list(read(folder)))
    assert before == list(range(len(before)))
    assert before[-1] < step

    ballast.unlink()
    log.append("step", step=step + 1)
    assert log.trouble is None
    assert not log.full
    assert log.waiting == 0
    assert log.sync()
    assert steps(list(read(folder))) == list(range(step + 2))
    assert len(segments(folder)) == 1


def test_a_full_disk_at_the_start_is_waited_out(mount: Mount) -> None:
    disk = mount("tmpfs", "size=1m,nr_inodes=3")
    log = EventLog(disk / "events")
    (disk / "last-inode").touch()
    log.append("start", step=0)
    assert log.waiting > 0
    assert log.trouble is not None
    (disk / "last-inode").unlink()
    assert log.flush()
    assert steps(list(read(disk / "events"))) == [0]


def test_a_writer_that_dies_on_a_full_disk_leaves_a_torn_line_that_readers_skip(
    mount: Mount, fill: Callable[[Path], Path]
) -> None:
    folder = mount("tmpfs", "size=1m") / "events"
    log = EventLog(folder)
    log.append("step", step=0)
    ballast = fill(folder.parent)
    log.append("step", step=1, text="x" * 5000)
    assert log.waiting > 0
    torn = lines(folder, 1)[-1]
    assert not torn.endswith(b"\n")
    assert len(torn) + log.waiting == len(encode("step", 0, {"step": 1, "text": "x" * 5000}))
    tail = Tail(folder)
    assert steps(tail.poll()) == steps(list(read(folder))) == steps(list(read_back(folder))) == [0]

    ballast.unlink()
    after = EventLog(folder)
    after.append("step", step=2)
    assert steps(tail.poll()) == [2]
    assert steps(list(read(folder))) == [0, 2]
    assert steps(list(read_back(folder))) == [2, 0]


def test_a_folder_that_is_gone_is_trouble_not_an_exception(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events")
    (tmp_path / "events").rmdir()
    log.append("step", step=1)
    assert not log.flush()
    assert log.trouble is not None
    assert str(tmp_path / "events") in log.trouble
    (tmp_path / "events").mkdir()
    assert log.sync()
    assert steps(list(read(tmp_path / "events"))) == [1]


def backed_up(folder: Path) -> None:
    """Removed, after a copy of hard links was made."""
    (folder.parent / "copy").hardlink_to(folder / "000001.jsonl")
    shutil.rmtree(folder)


AWAY: dict[str, Callable[[Path], object]] = {
    "folder removed": shutil.rmtree,
    "file removed": lambda folder: (folder / "000001.jsonl").unlink(),
    "folder moved": lambda folder: folder.rename(folder.parent / "away"),
    "backed up": backed_up,
}


@pytest.mark.parametrize("how", AWAY)
def test_a_segment_that_is_gone_is_followed_by_one_with_all_that_was_not_synced(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    log, tail = EventLog(folder), Tail(folder)
    for step in range(3):
        log.append("step", step=step)
    assert log.sync() and log.mend() is None
    log.append("step", step=3)
    assert steps(tail.poll()) == [0, 1, 2, 3]
    AWAY[how](folder)
    log.append("step", step=4)
    assert log.mend() == str(folder / "000001.jsonl") and log.mend() is None
    log.append("step", step=5)
    assert log.close()
    assert [path.name for path in segments(folder)] == ["000002.jsonl"]
    assert steps(tail.poll()) == [3, 4, 5]


def test_a_short_write_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, turn = os.write, iter(range(10**6))

    def seven_bytes_or_none(fd: int, data: bytes) -> int:
        if next(turn) % 3 == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return write(fd, data[:7])

    monkeypatch.setattr(os, "write", seven_bytes_or_none)
    log = EventLog(tmp_path)
    for step in range(50):
        log.append("step", step=step)
    monkeypatch.undo()
    assert log.waiting > 0
    assert log.flush()
    assert steps(list(read(tmp_path))) == list(range(50))


# --- a failed fsync ----------------------------------------------------------------------------------------

FSYNC = """
from pathlib import Path
from andrea_rundir.eventlog import EventLog
log = EventLog(Path({folder!r}))
log.append("step", step=0)
assert log.sync()
log.append("step", step=1)
log.append("step", step=2)
assert not log.sync()
print(log.trouble)
assert log.waiting > 0
log.append("step", step=3)
assert log.waiting == 0
assert log.sync()
assert log.trouble is None
assert log.close()
"""


def test_after_a_failed_fsync_all_since_the_last_good_one_is_written_anew(tmp_path: Path, traced: Traced) -> None:
    folder = tmp_path / "events"
    # fsyncs: the run's folder, events/, segment 1, segment 1 again: this one fails.
    status, output, calls = traced(FSYNC.format(folder=str(folder)), "fsync", "fsync:error=EIO:when=4")
    assert status == 0, output
    assert "000001.jsonl: Input/output error" in output
    touched = [call for call in calls if "000001.jsonl" in call]
    assert len(touched) == 2, "the segment whose fsync failed is never fsynced again"
    assert steps([json.loads(line) for line in lines(folder, 1)]) == [0, 1, 2]
    assert steps([json.loads(line) for line in lines(folder, 2)]) == [1, 2, 3]
    assert steps(list(read(folder))) == [0, 1, 2, 1, 2, 3]
    assert lines(folder, 1)[1:] == lines(folder, 2)[:2], "the same bytes, so that a reader can tell"


def test_without_a_durable_name_nothing_is_written(tmp_path: Path, traced: Traced) -> None:
    code = f"""
from pathlib import Path
from andrea_rundir.eventlog import EventLog
log = EventLog(Path({str(tmp_path / "events")!r}))
log.append("step", step=0)
assert log.waiting > 0
assert log.sync()
"""
    status, output, _ = traced(code, "fsync", "fsync:error=EIO:when=2")
    assert status == 0, output
    assert steps(list(read(tmp_path / "events"))) == [0]


def test_close_makes_durable_after_a_failed_fsync(tmp_path: Path, traced: Traced) -> None:
    code = f"""
from pathlib import Path
from andrea_rundir.eventlog import EventLog
log = EventLog(Path({str(tmp_path / "events")!r}))
log.append("stop", step=0)
assert log.close()
"""
    status, output, calls = traced(code, "fsync", "fsync:error=EIO:when=3")
    assert status == 0, output
    assert "000002.jsonl" in calls[-1]


@pytest.mark.parametrize("room", [10**6, 20], ids=["written", "torn"])
def test_append_does_not_wait_for_a_sync_and_is_not_lost_by_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    write, reached, go = os.write, threading.Event(), threading.Event()
    log = EventLog(tmp_path)
    log.append("step", step=0)

    def slow_and_broken(fd: int) -> None:
        reached.set()
        assert go.wait(10)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", slow_and_broken)
    results: list[bool] = []
    saver = threading.Thread(target=lambda: results.append(log.sync()))
    saver.start()
    assert reached.wait(10)
    left = [room]

    def until_full(fd: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = write(fd, data[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr(os, "write", until_full)
    log.append("step", step=1)
    assert len(lines(tmp_path, 1)) == 2, "it did not wait"
    go.set()
    saver.join()
    monkeypatch.undo()
    assert results == [False]
    assert log.waiting == 2 * len(lines(tmp_path, 1)[0])
    assert log.sync()
    assert log.waiting == 0
    assert steps([json.loads(line) for line in lines(tmp_path, 2)]) == [0, 1]


def test_what_came_during_a_good_sync_is_not_taken_for_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync
    log = EventLog(tmp_path)
    log.append("step", step=0)

    def append_meanwhile(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        log.append("step", step=1)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", append_meanwhile)
    assert log.sync()

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    assert not log.sync()
    monkeypatch.setattr(os, "fsync", fsync)
    assert log.sync()
    assert steps([json.loads(line) for line in lines(tmp_path, 2)]) == [1]


def test_a_killed_writer_loses_no_event_it_had_appended(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from andrea_rundir.eventlog import EventLog
log = EventLog(Path({str(tmp_path / "events")!r}))
for step in range(1000):
    log.append("step", step=step)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert steps(list(read(tmp_path / "events"))) == list(range(1000))
