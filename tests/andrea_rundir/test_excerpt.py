"""Which events a checkpoint stands on, when processes were killed, went back, or trained the same steps otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from andrea_rundir import entries
from andrea_rundir.eventlog import EventLog
from andrea_rundir.events import read
from andrea_rundir.excerpt import excerpt, origins
from andrea_rundir.lossfile import LossFile

ONE, OTHER = "ab" * 32, "cd" * 32
POLICIES = {10: "0-aaaaaaaaaaaa", 99: "10-bbbbbbbbbbbb"}


class Past:
    """Writes the events of processes, one after the other; the clock gives every event a time of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._now = folder, 1e9

    def _clock(self) -> float:
        self._now += 1
        return self._now

    def process(self, start: int, last: int, *, digest: str = ONE, told: bool = True) -> None:
        """From the checkpoint of `start` to `last`; every tenth step is saved, and `told` of, with that digest."""
        log = EventLog(self.folder, clock=self._clock)
        policy = {"id": POLICIES[10], "text": "a", "arms": {"a": "f"}}
        log.append("start", step=start, furthest=99, config={}, policy=policy)
        for step in range(start + 1, last + 1):
            name = next(POLICIES[end] for end in POLICIES if step <= end)
            if step % 10 == 1:
                log.append("fallback", round=step // 10, first=step, last=step + 9)
            log.append("step", step=step, loss=1.5, policy=name, cursors={"a": step})
            if step % 10 == 0:
                log.append("snapshot", step=step, cursors={"a": step})
                log.append("probe", step=step, mean=2.0)
            if step % 10 == 2 and step > 10 and told:  # the save of the step before last ends now
                log.append("checkpoint", step=step - 2, digest=digest)
                log.append("audit", step=step - 2, digest=digest)
        log.append("warning", step=None, what="not pruned", detail="")
        log.append("stop", step=last, reason="sigterm")
        assert log.close()

    def taken(self, step: int, digest: str) -> list[dict[str, Any]]:
        """What a branch takes along; what it is made of must be lines of ours, in order."""
        target = self.folder.with_name("taken")
        target.mkdir()
        for name, content in excerpt(self.folder, origins(self.folder, step, digest)):
            (target / name).write_bytes(content)
            lines = iter((self.folder / name).read_bytes().splitlines(keepends=True))
            assert all(line in lines for line in content.splitlines(keepends=True))
        return list(read(target))


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path / "events")


def steps(events: list[dict[str, Any]], kind: str = "step") -> list[int]:
    return [event.get("step", event.get("first")) for event in events if event["event"] == kind]


def test_what_came_later_is_left_out_and_what_was_said_late_is_not(past: Past) -> None:
    past.process(0, 25)
    taken = past.taken(20, ONE)
    assert steps(taken) == list(range(1, 21)) and steps(taken, "fallback") == [1, 11]
    for kind in ("snapshot", "probe", "audit", "checkpoint"):
        assert steps(taken, kind)[-1] == 20
    assert steps(taken, "stop") == [] and steps(taken, "warning") == [None]
    found = origins(past.folder, 20, ONE)
    assert list(found.last) == list(POLICIES.values()) and [e["step"] for e in found.last.values()] == [10, 20]
    assert found.snapshot is not None and found.snapshot["cursors"] == {"a": 20}
    assert list(found.policies) == [POLICIES[10]] and found.digests == {ONE}


def test_of_processes_that_went_back_those_before_count(past: Past) -> None:
    past.process(0, 25)
    past.process(10, 15)  # killed: it went back once more
    past.process(10, 35)
    taken = past.taken(30, ONE)
    assert steps(taken, "start") == [0, 10, 10]
    assert steps(taken) == [*range(1, 26), *range(11, 16), *range(11, 31)]
    assert list(origins(past.folder, 30, ONE).last) == list(POLICIES.values())


def test_the_first_making_of_a_file_is_enough(past: Past) -> None:
    past.process(0, 25)
    past.process(10, 35)
    assert steps(past.taken(20, ONE)) == list(range(1, 21))


def test_the_digest_tells_which_history_it_is(past: Past, tmp_path: Path) -> None:
    """After step 10 something was changed and the steps came out otherwise; both files of step 20 are there."""
    past.process(0, 25)
    past.process(10, 35, digest=OTHER)
    assert origins(past.folder, 20, ONE).digests == {ONE, OTHER}
    mine, theirs = origins(past.folder, 20, ONE), origins(past.folder, 20, OTHER)
    assert (mine.processes, theirs.processes) == (1, 2) and not theirs.void
    assert {step for step, _ in mine.void} == set(range(11, 21))
    loss = LossFile(tmp_path / ".loss.json")
    made = [event for event in read(past.folder) if event["event"] == "step"]
    seen: dict[int, int] = {}
    for event in made:
        seen[event["step"]] = seen.get(event["step"], 0) + 1
        figures = {"loss": 1.0, "arms": {}, "lr": 1.0, "grad_norm": 1.0, "tokens": 1, "policy": "0-a", "flags": []}
        whole = {**figures, "seconds": 1.0, "time": event["time"]}
        loss.append([{"step": event["step"], "attempt": seen[event["step"]], "ema": 1.0, **whole}])
    loss.close()
    for history, count in ((mine, 20), (theirs, 30)):
        (tmp_path / "other.json").write_bytes(entries.excerpt(loss.path, history.has_entry))
        taken = list(entries.read(tmp_path / "other.json"))
        assert len(taken) == count and max(entry["step"] for entry in taken) == 20


def test_a_file_whose_saving_was_never_told_is_of_the_last_process_that_tried(past: Past) -> None:
    past.process(0, 25, digest=OTHER)
    past.process(10, 22, told=False)
    past.process(20, 25)
    assert origins(past.folder, 20, ONE).processes == 2
    assert origins(past.folder, 20, OTHER).processes == 1


def test_a_file_of_which_nothing_is_known_gets_all_up_to_its_step(past: Past) -> None:
    past.process(0, 25)
    found = origins(past.folder, 15, ONE)
    assert found.processes is None and found.snapshot is None and found.digests == set()
    assert steps(past.taken(15, ONE)) == list(range(1, 16))
    assert origins(past.folder.with_name("none"), 15, ONE).start is None


def test_torn_and_damaged_lines_stay_behind(past: Past) -> None:
    past.process(0, 12)
    path = next(past.folder.iterdir())
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3][:20] + b"\0" * 8 + b"\n"
    path.write_bytes(b"".join(lines) + b'{"event":"step","time":"t","step":9')
    taken = past.taken(10, ONE)
    assert len(steps(taken)) == 9 and all(event["event"] != "unreadable" for event in taken)
