from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea_rundir import planfile
from andrea_rundir.plan import SHARE_UNIT, RoundPlan
from andrea_rundir.planfile import Line, PlanFile, PlanReader, decode, encode


def line(number: int, *, fallback: bool = False, text: str | None = None, policy: str = "0-0123456789ab") -> Line:
    plan = RoundPlan(
        round=number,
        first=2 * number + 1,
        last=2 * number + 2,
        policy=policy,
        arms={"a": "ff" * 8, "b": "00" * 8},
        shares={"a": SHARE_UNIT // 4, "b": 3 * SHARE_UNIT // 4},
        cursors={"a": number, "b": 3 * number},
        credits={"a": 0, "b": 0},
        limits={"a": None, "b": 40},
        caps={"a": SHARE_UNIT, "b": SHARE_UNIT},
        steps=None if fallback else [{"a": 1, "b": 3}, {"b": 4}],
    )
    return Line(plan, fallback=fallback, policy_text=text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plan.jsonl"


def test_lines_through_bytes_and_back() -> None:
    for made in (
        line(3),
        line(3, fallback=True),
        line(0, text='learner = "ucb1"\n# é\n'),
        replace(line(2), scaled=True),
    ):
        assert decode(encode(made)) == made and encode(made).count(b"\n") == 1


@pytest.mark.parametrize("bad", [b"[]", b"{}", b'{"round":1', encode(line(1)).replace(b'"shares"', b'"sharks"')])
def test_what_is_no_line_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError):
        decode(bad)


def test_without_a_file_there_are_no_lines(path: Path) -> None:
    assert list(planfile.read_back(path)) == planfile.first_lines(path) == list(planfile.fallbacks(path)) == []
    assert planfile.line_of(path, 0) is None and PlanReader(path, 0).poll() == []


def test_policies_and_fallbacks_are_found_without_reading_the_rest(path: Path) -> None:
    """Marks inside of a policy's text, where quotes are escaped, are none."""
    plan = PlanFile(path)
    text = '# "policy_text": and "fallback":true in a comment\n'
    lines = [line(0, text=text), line(1), line(2, fallback=True, text="second"), line(3), line(4, fallback=True)]
    plan.append(lines)
    assert planfile.first_lines(path) == [lines[0], lines[2]]
    assert list(planfile.fallbacks(path)) == [lines[2], lines[4]]
    assert list(planfile.read(path)) == list(planfile.read_back(path))[::-1] == lines


def test_a_damaged_first_line_of_a_policy_is_passed_over(path: Path) -> None:
    """The trainer may look before the proxy has repaired the file."""
    torn = encode(line(1, text="second", policy="10-0123456789ab"))
    path.write_bytes(encode(line(0, text="first")) + torn[:60] + b"\0" * (len(torn) - 61) + b"\n")
    assert planfile.first_lines(path) == [line(0, text="first")]


def test_the_last_line_of_a_round_counts(path: Path) -> None:
    plan = PlanFile(path)
    plan.append([line(n) for n in range(8)])
    plan.append([line(6, fallback=True), line(7)])
    found = planfile.line_of(path, 6)
    assert found is not None and found.fallback
    assert planfile.line_of(path, 0) is not None and planfile.line_of(path, 8) is None


def test_a_torn_line_is_cut_and_said(path: Path) -> None:
    PlanFile(path).append([line(0), line(1)])
    whole = path.read_bytes()
    path.write_bytes(whole + encode(line(2))[:40])
    assert list(planfile.read(path)) == [line(0), line(1)] == list(planfile.read_back(path))[::-1]
    plan = PlanFile(path)
    assert plan.torn is not None and path.read_bytes() == whole
    plan.append([line(2)])
    assert PlanFile(path).torn is None and list(planfile.read(path)) == [line(0), line(1), line(2)]


def test_a_reader_gets_each_line_once_and_waits_for_its_end(path: Path) -> None:
    plan, early = PlanFile(path), PlanReader(path, 0)
    plan.append([line(n) for n in range(20)])
    late = PlanReader(path, 12)
    assert early.poll() == [line(n) for n in range(20)] and early.poll() == []
    assert [found.plan.round for found in late.poll()][-8:] == list(range(12, 20))
    data = encode(line(20))
    with path.open("ab") as file:
        file.write(data[:50])
        file.flush()
        assert late.poll() == []
        file.write(data[50:])
        file.flush()
        assert late.poll() == [line(20)] == early.poll()


def test_a_reader_passes_over_what_cannot_be_used(path: Path) -> None:
    path.write_bytes(encode(line(0)) + b"junk\n" + encode(line(1)))
    reader = PlanReader(path, 0)
    assert reader.poll() == [line(0), line(1)]
    with path.open("ab") as file:
        file.write(b"more junk\n" + encode(line(2)))
    assert reader.poll() == [line(2)]


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_reader_begins_again_where_another_file_has_the_name(path: Path, more: int) -> None:
    """However long that is: the place where the reader was lies inside of a line of it."""
    path.write_bytes(encode(line(0)) + encode(line(1)))
    reader = PlanReader(path, 0)
    assert len(reader.poll()) == 2
    again = [line(1, text="a policy"), *(line(n) for n in range(2, 2 + more))]
    path.unlink()
    assert reader.poll() == []
    path.write_bytes(b"".join(map(encode, again)))
    assert reader.poll() == again and reader.poll() == []


def test_a_reader_finds_a_line_in_a_file_that_took_the_place_of_one_as_long(path: Path) -> None:
    """A line was set aside as damaged, and another of its length was added, before the reader looked again."""
    plan = PlanFile(path)
    plan.append([line(0), line(1)])
    reader = PlanReader(path, 0)
    assert len(reader.poll()) == 2
    path.write_bytes(path.read_bytes().replace(b"}", b"!", 1))
    planfile.salvage(path)
    PlanFile(path).append([line(2)])
    assert [read.plan.round for read in reader.poll()] == [1, 2]


def test_a_damaged_file_is_set_aside_and_its_good_lines_carried_over(path: Path) -> None:
    data = encode(line(0, text="first")) + b"junk\n" + encode(line(2))
    path.write_bytes(data)
    with pytest.raises(ValueError):
        list(planfile.read(path))
    reader = PlanReader(path, 0)
    aside = planfile.salvage(path)
    assert aside.read_bytes() == data and list(planfile.read(path)) == [line(0, text="first"), line(2)]
    path.write_bytes(b"worse\n")
    assert planfile.salvage(path) != aside and path.read_bytes() == b""
    PlanFile(path).append([line(3)])
    assert line(3) in reader.poll()


def test_an_excerpt_ends_with_the_rounds_that_begin_in_time(path: Path) -> None:
    assert planfile.excerpt(path, 9) == b""
    lines = [encode(made) for made in (line(0, text="x"), line(1), line(2), line(1, fallback=True), line(3))]
    path.write_bytes(lines[0] + lines[1] + b"junk\n" + b"".join(lines[2:]) + b'{"round":4')
    assert planfile.excerpt(path, 4) == lines[0] + lines[1] + lines[3]
    assert planfile.excerpt(path, 5) == b"".join(lines[:4]) and planfile.excerpt(path, 99) == b"".join(lines)


def test_what_cannot_be_written_whole_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, real = PlanFile(path), os.write
    plan.append([line(0)])
    before = path.read_bytes()

    def full(fd: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "full")
        return real(fd, data[:100])

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(os, "write", full)
        plan.append([line(1)])
    assert path.read_bytes() == before
    plan.append([line(1)])
    assert list(planfile.read(path)) == [line(0), line(1)]


def test_after_a_failed_fsync_the_lines_go_into_a_new_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, real, failed = PlanFile(path), os.fsync, list[int]()

    def fail_once(fd: int) -> None:
        if not failed:
            failed.append(fd)
            raise OSError(errno.EIO, "no")
        real(fd)

    inode = path.stat().st_ino
    monkeypatch.setattr(os, "fsync", fail_once)
    plan.append([line(0)])
    plan.append([line(1)])
    assert path.stat().st_ino != inode and list(planfile.read(path)) == [line(0), line(1)]


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 12), st.integers(20, 4000))
@settings(max_examples=50, deadline=None)
def test_a_reader_that_starts_late_misses_nothing_it_was_started_for(
    tmp_path_factory: pytest.TempPathFactory, back: list[int], since: int, block: int
) -> None:
    """Rounds go up, and now and then back by up to three: a fallback, and what is planned anew after it."""
    path, rounds, number = tmp_path_factory.mktemp("plan") / "plan.jsonl", list[int](), 0
    for steps in back:
        number = max(0, number - steps + 1)
        rounds.append(number)
        number += 1
    plan = PlanFile(path)
    plan.append([line(n) for n in rounds])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("andrea_rundir.lines.BLOCK", block)
        found = [read.plan.round for read in PlanReader(path, since).poll()]
    assert [n for n in found if n >= since] == [n for n in rounds if n >= since]
