"""`andrea verify` on a run that was trained with both processes, killed once and pivoted once: sound as it is, and
whatever is done to it is found and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from andrea_cli.keep import link
from andrea_corpus.prepare import prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir import digests, inspection, policy
from andrea_rundir.entries import encode, read
from andrea_rundir.events import starts
from andrea_rundir.names import RunDir
from harness import Trainer, make_run, start, start_proxy, texts, until
from harness.commands import Andrea, Done, snapshot

LAST = 60
CHANGES = {
    "run": {"plan_wait": 600.0},
    "optimizer": {"max_steps": LAST},
    "checkpoint": {"every": 10, "keep_last": 2},
    "probe": {"every": 20},
}
KILLED = {"at": "andrea_train.loop:Loop._step", "call": 14, "do": "KILL", "after": False}
"""Resumed at step 25, killed in step 39: what follows the newest checkpoint that was durable is trained again."""


def end_well(process: Trainer) -> None:
    assert process.wait() == 0, process.said()


def recorded(run: RunDir) -> int:
    return max((entry["step"] for entry in read(run.loss)), default=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """60 steps: stopped at 25, killed at 38, one kept checkpoint, another policy from step 51 on."""
    folder = tmp_path_factory.mktemp("verify")
    sources = texts(folder / "texts")
    run = make_run(folder / "run", changes=CHANGES, arms=sources)
    with start_proxy(run) as proxy:
        with start(run, "--until-step", "25") as trainer:
            end_well(trainer)
        with start(run, hurt=[KILLED]) as trainer:
            assert trainer.wait() == -9
        until("all is recorded", lambda: recorded(run) == 38)
        another = f'[arms.prose]\npath = "{sources["prose"]}"\ncap = 0.75\n[arms.sums]\npath = "{sources["sums"]}"\n'
        rules = policy.parse(another, "the test", run.root)
        prepare(run, rules, ByteTokenizer(), held_out=0.1, context=32)
        run.policy_next.write_text(another)
        until("the request is taken up", run.policy_pending.exists)
        with start(run) as trainer:
            end_well(trainer)
        until("all is recorded", lambda: recorded(run) == LAST)
        until("the pivot is finished", lambda: not run.policy_pending.exists())
        assert proxy.stop() == 0, proxy.said()
    link(run, LAST)
    return run


def again(run: RunDir) -> int:
    """Steps that were trained twice: how quick the disk was decides whether checkpoint 30 was durable at the kill."""
    first, second, third = (event["step"] for _, event in starts(run.events))
    assert (first, second) == (0, 25) and third in (25, 30)
    return 38 - int(third)


@pytest.fixture
def run(trained: RunDir, tmp_path: Path) -> RunDir:
    """A copy to be spoilt."""
    return RunDir(Path(shutil.copytree(trained.root, tmp_path / "run")))


def found(done: Done) -> list[tuple[str, str]]:
    """What was found and where, file names without their folders."""
    assert done.code == (1 if done.json["findings"] else 0)
    return [(finding["what"], finding["where"].rpartition("/")[2]) for finding in done.json["findings"]]


def lines(run: RunDir) -> list[bytes]:
    """Of `.loss.json`: `[`, the entries, the rest."""
    return run.loss.read_bytes().splitlines(keepends=True)


def entry(run: RunDir, step: int, **changes: Any) -> bytes:
    """The line of an entry, some figures changed."""
    return encode({**next(e for e in read(run.loss) if e["step"] == step), **changes}) + b",\n"


def test_a_sound_run_is_sound_and_stays_as_it_is(run: RunDir, andrea: Andrea) -> None:
    (run.root / "step_000030.bin.bad").write_bytes(b"x")
    before = snapshot(run.root)
    done = andrea("verify", run.root, "--json")
    assert done.code == 0 and done.json["sound"] and done.json["findings"] == []
    checked = done.json["checked"]
    names = {path.stat().st_ino: path.stat().st_size for path in run.root.rglob("step_*.bin")}
    assert (checked["checkpoints"]["files"], checked["checkpoints"]["bytes"]) == (len(names), sum(names.values()))
    assert checked["history"]["files"] == 4 and "60 entries, no gap from step 1 to 60" in checked["history"]["checked"]
    assert (
        "over 2 policies" in checked["history"]["checked"]
        and f"{60 + again(run)} events" in checked["history"]["checked"]
    )
    assert "1 archived: the fold of history" in checked["curriculum"]["checked"]
    assert snapshot(run.root) == before
    shown = andrea("verify", run.root).out
    assert shown.endswith("sound\n") and "step_000030.bin.bad was set aside" in shown


@pytest.mark.parametrize("place", ["step_000060.bin", "step_000000.bin", "archive/step_000050/step_000050.bin"])
def test_a_flipped_byte(place: str, run: RunDir, andrea: Andrea) -> None:
    path = run.root / place
    data = bytearray(path.read_bytes())
    data[len(data) // 5] ^= 1
    path.unlink()
    path.write_bytes(data)
    what = "not what this run saved: changed, or of another run"
    expected = what if "archive" in place else "not what was saved: the bytes have changed"
    assert found(andrea("verify", run.root, "--json")) == [(expected, path.name)]
    shown = andrea("verify", run.root)
    assert shown.code == 1 and "NOT SOUND" in shown.out and "SHA-256" in shown.out and str(path) in shown.out


def test_a_file_that_is_no_checkpoint(run: RunDir, andrea: Andrea) -> None:
    with run.checkpoint(60).open("rb+") as file:
        file.truncate(1000)
    assert found(andrea("verify", run.root, "--json")) == [("not a usable checkpoint", "step_000060.bin")]
    values = np.fromfile(run.checkpoint(50), "<f4")
    values[5] = np.nan
    values.tofile(run.checkpoint(50))
    assert "w[3] is nan" in andrea("verify", run.root).out


def test_a_checkpoint_of_another_run(run: RunDir, andrea: Andrea) -> None:
    """Whole and with a digest line, at a step that this run has saved, and at one that it has not."""
    for step in (25, 45):
        values = np.fromfile(run.checkpoint(60), "<f4")
        values[2:] *= 2
        values[:1].view("<i4")[0] = step
        run.checkpoint(step).unlink(missing_ok=True)
        values.tofile(run.checkpoint(step))
        digests.record(run.sums, run.checkpoint(step).name, inspection.inspect(run.checkpoint(step)).digest)
    what = "a checkpoint of another run"
    done = andrea("verify", run.root, "--json")
    assert found(done) == [(what, "step_000025.bin"), (what, "step_000045.bin")]
    assert "an event of this run about step 45" in done.json["findings"][1]["expected"]


def test_a_checkpoint_of_another_model(run: RunDir, andrea: Andrea) -> None:
    values = np.concatenate([np.array([70, 3], "<i4").view("<f4"), np.ones(9, "<f4")])
    values.tofile(run.checkpoint(70))
    assert ("a checkpoint of another model", "step_000070.bin") in found(andrea("verify", run.root, "--json"))


def test_a_missing_digest_line(run: RunDir, andrea: Andrea) -> None:
    lost = digests.read(run.sums)[run.checkpoint(25).name]
    digests.forget(run.sums, [run.checkpoint(25).name])
    done = andrea("verify", run.root, "--json")
    assert found(done) == [("no digest line", "SHA256SUMS")]
    line = done.json["findings"][0]["expected"]
    assert line == f"{lost}  step_000025.bin" and "add that line" in done.json["findings"][0]["todo"]
    with run.sums.open("a") as file:
        file.write(line + "\n")
    assert andrea("verify", run.root).code == 0


def test_a_kill_between_the_file_and_its_event_is_no_fault(run: RunDir, andrea: Andrea) -> None:
    segment = sorted(run.events.iterdir())[0]
    kept = [line for line in segment.read_bytes().splitlines(keepends=True) if b'"step":25' not in line[:120]]
    snapshots = [line for line in segment.read_bytes().splitlines(keepends=True) if b'"snapshot"' in line[:20]]
    segment.write_bytes(b"".join([*kept, snapshots[-1]]))
    done = andrea("verify", run.root, "--json")
    assert [finding["what"] for finding in done.json["findings"]] == []
    assert "no event tells of it" in done.json["checked"]["checkpoints"]["notes"][0]


def test_a_missing_step(run: RunDir, andrea: Andrea) -> None:
    whole = lines(run)
    run.loss.write_bytes(b"".join(line for line in whole if not line.startswith((b'{"step":17,', b'{"step":18,'))))
    names = found(andrea("verify", run.root, "--json"))
    assert ("steps 17 to 18 missing", ".loss.json") in names
    assert ("step 17 was not recorded", ".loss.json") in names  # its event is there
    assert ("the curriculum's state is not the fold of history", ".state.json") in names
    run.loss.write_bytes(b"".join([whole[0], *whole[3:]]))
    assert ("steps 1 to 2 missing", ".loss.json") in found(andrea("verify", run.root, "--json"))


def test_two_entries_that_disagree_within_one_attempt(run: RunDir, andrea: Andrea) -> None:
    whole = lines(run)
    run.loss.write_bytes(b"".join([*whole[:20], entry(run, 19, loss=9.0), *whole[20:]]))
    names = found(andrea("verify", run.root, "--json"))
    assert ("two entries that disagree, of one attempt", ".loss.json: step 19, attempt 1") in names
    run.loss.write_bytes(b"".join([*whole[:20], entry(run, 19), *whole[20:]]))
    names = found(andrea("verify", run.root, "--json"))
    assert ("recorded twice, of one attempt", ".loss.json: step 19, attempt 1") in names
    run.loss.write_bytes(b"".join([*whole[:20], entry(run, 19, attempt=3), *whole[20:]]))
    names = found(andrea("verify", run.root, "--json"))
    assert ("an attempt is missing", ".loss.json: step 19, attempt 3") in names


def test_an_entry_that_is_not_what_happened(run: RunDir, andrea: Andrea) -> None:
    whole = lines(run)
    run.loss.write_bytes(b"".join([*whole[:19], entry(run, 19, grad_norm=0.5), *whole[20:]]))
    names = found(andrea("verify", run.root, "--json"))
    assert ("the entry of step 19 is not what happened", ".loss.json") in names
    before = next(e for e in read(run.loss) if e["step"] == 18)
    run.loss.write_bytes(b"".join([*whole[:19], entry(run, 19, ema=before["ema"]), *whole[20:]]))
    names = found(andrea("verify", run.root, "--json"))
    assert ("a smoothed loss does not follow", ".loss.json: step 19, attempt 1") in names


def test_a_history_of_two_policies_that_does_not_join(run: RunDir, andrea: Andrea) -> None:
    whole = lines(run)
    policies = [e["policy"] for e in read(run.loss)]
    run.loss.write_bytes(b"".join([*whole[:50], entry(run, 50, policy=policies[-1]), *whole[51:]]))
    names = found(andrea("verify", run.root, "--json"))
    assert ("a policy begins where it should not", ".loss.json: step 50, attempt 1") in names


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"[\n", b"\n", "not a history"),
        (b'{"step":30,', b'{"stop":30,', "an entry cannot be read"),
        (b'\n{"step":30,', b' {"step":30,', "an entry cannot be read"),
        (b"\n]", b"", "torn"),
        (b"]", b"", "torn"),
        (b"]", b"]\nx", "something stands behind the end"),
    ],
)
def test_a_history_that_is_no_array(old: bytes, new: bytes, what: str, run: RunDir, andrea: Andrea) -> None:
    data = run.loss.read_bytes()
    first, second = data.rstrip().rsplit(old, 1) if b"]" in old else data.split(old, 1)
    run.loss.write_bytes(first + new + second)
    assert what in [name for name, _ in found(andrea("verify", run.root, "--json"))]


def test_a_state_that_is_not_the_fold(run: RunDir, andrea: Andrea) -> None:
    state = json.loads(run.state.read_bytes())
    state["arms"]["prose"]["reward"] += 1e-15
    run.state.write_text(json.dumps(state))
    done = andrea("verify", run.root, "--json")
    assert found(done) == [("the curriculum's state is not the fold of history", ".state.json")]
    assert done.json["findings"][0]["found"] == "arms.prose.reward differ"
    andrea("rebuild-state", run.root)  # what it says should be done
    assert andrea("verify", run.root).code == 0
    run.state.write_text('{"schema": 1}')
    assert [what for what, _ in found(andrea("verify", run.root, "--json"))] != []
    archived = run.archived(50) / ".state.json"
    archived.write_text(archived.read_text().replace('"step":50', '"step":51', 1))
    assert "archived state is not the fold" in andrea("verify", run.root).out


def test_a_plan_and_events_that_cannot_be_read(run: RunDir, andrea: Andrea) -> None:
    data = run.plan.read_bytes()
    run.plan.write_bytes(data.replace(b'{"round":1', b'{"raund":1', 1))
    segment = sorted(run.events.iterdir())[0]
    segment.write_bytes(segment.read_bytes().replace(b'{"event":"step"', b'{"event";"step"', 1) + b'{"torn')
    names = found(andrea("verify", run.root, "--json"))
    assert names[0][0] == "an event cannot be read" and names[0][1].startswith("000001.jsonl, line ")
    assert names[1] == ("the plan cannot be read", "plan.jsonl: line 2")


def test_a_file_that_is_altogether_wrong_is_told_of_briefly(run: RunDir, andrea: Andrea) -> None:
    data = run.loss.read_bytes()
    run.loss.write_bytes(data.replace(b'"lr":', b'"lr":1'))
    done = andrea("verify", run.root, "--json")
    assert len(done.json["findings"]) < 60 and done.json["more_findings"] > 0
    assert "more of these" in andrea("verify", run.root).out


@pytest.mark.parametrize("aside", [[".loss.json", ".state.json"], [".state.json"]])
def test_what_it_says_should_be_done_helps(aside: list[str], run: RunDir, andrea: Andrea) -> None:
    whole = lines(run)
    damaged = [*whole[:20], *whole[25:]] if len(aside) == 2 else [*whole[:20], b'{"step":20,"at\n', *whole[21:]]
    run.loss.write_bytes(b"".join(damaged))
    assert f"stop andrea-proxy, move {' and '.join(aside)} aside" in andrea("verify", run.root).out
    for name in aside:
        (run.root / name).rename(run.root / f"{name}.aside")
    with start_proxy(run) as proxy:
        until("all is recorded", lambda: recorded(run) == LAST)
        assert proxy.stop() == 0, proxy.said()
    assert andrea("verify", run.root).code == 0
    assert lines(run)[: LAST + 1] == whole[: LAST + 1]


def test_no_false_alarm_beside_both_processes(andrea: Andrea, tmp_path: Path) -> None:
    """Checkpoints are made and pruned, entries and states written while they are read."""
    changes = {
        "run": {"plan_wait": 600.0},
        "optimizer": {"max_steps": 100_000},
        "checkpoint": {"every": 10, "keep_last": 2, "keep_every": 10_000},
        "samples": {"tokens": 1},
    }
    run = make_run(tmp_path / "busy", changes=changes)
    with start_proxy(run) as proxy, start(run) as trainer:
        until("it trains", lambda: recorded(run) >= 40)
        for _ in range(6):
            done = andrea("verify", run.root, "--json")
            assert found(done) == [], done.out
            assert "no gap" in done.json["checked"]["history"]["checked"]
        run.loss.with_name("step_000001.bin").write_bytes(b"x")  # and what is wrong is seen there, too
        assert ("not a usable checkpoint", "step_000001.bin") in found(andrea("verify", run.root, "--json"))
        assert trainer.stop() == 0 and proxy.stop() == 0


def test_a_run_that_never_started(andrea: Andrea, tmp_path: Path) -> None:
    run = make_run(tmp_path / "new")
    done = andrea("verify", run.root, "--json")
    assert done.code == 0 and done.json["sound"]
    assert any("has not planned" in note for note in done.json["checked"]["curriculum"]["notes"])


def test_what_was_looked_at_agrees(run: RunDir, andrea: Andrea) -> None:
    """`status`, `list` and `plot` tell the same story, and it is this run's."""
    status = andrea("status", run.root, "--json").json
    last = list(read(run.loss))[-1]
    assert (status["step"], status["loss"], status["ema"]) == (LAST, last["loss"], last["ema"])
    assert (status["restarts"], status["steps_lost"], status["pivot"]) == (2, again(run), None)
    assert status["seconds_lost"] > 0 and status["seconds_down"] > 0
    assert f"restarts:   2; lost: {again(run)} steps trained again" in andrea("status", run.root).out
    picture = andrea("plot", run.root, "--out", run.root / "p.svg", "--json").json
    assert picture["steps"] == LAST and picture["marks"]["pivots"] == [50]
    assert picture["marks"]["restarts"] == [25, 38 - again(run)] and picture["marks"]["kept"] == [50, 60]
