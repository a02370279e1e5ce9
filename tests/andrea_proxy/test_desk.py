"""The desk over histories that went wrong: torn, damaged, contradictory, begun elsewhere, on a full disk."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from andrea_proxy.desk import Desk
from andrea_proxy.rebuild import rebuild
from andrea_rundir import config, events, planfile
from andrea_rundir.entries import Entry, latest, read
from andrea_rundir.events import segments
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from harness import dry, entries
from harness.dry import DryTrainer, desk, look, quiet, served

STEPS = 60

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

Make = Callable[..., RunDir]


@pytest.fixture(scope="module")
def trained(make: Make) -> RunDir:
    return quiet(make("trained", {"optimizer": {"max_steps": 400}}), STEPS)


@pytest.fixture
def run(trained: RunDir, tmp_path: Path) -> RunDir:
    return RunDir(Path(shutil.copytree(trained.root, tmp_path / "run")))


def go_on(run: RunDir, last: int) -> None:
    """Both to step `last`; the trainer goes on from its checkpoint."""
    proxy = desk(run)
    proxy.turn()
    DryTrainer(run, served(proxy)).train(last)
    proxy.turn()
    proxy.close()


def is_folded_right(run: RunDir) -> bool:
    found = rebuild(run, config.load(run.run_toml))
    return not found.differences and not found.problem


@pytest.mark.parametrize("state", [True, False])
def test_a_torn_loss_file_is_repaired_from_the_events(
    state: bool, run: RunDir, caplog: pytest.LogCaptureFixture
) -> None:
    good = run.loss.read_bytes().rstrip()
    if not state:
        run.state.unlink()
    with run.loss.open("r+b") as file:
        file.seek(len(good) - 3000)
        file.write(b"\0" * 4000)
    look(run)
    assert run.loss.read_bytes().rstrip() == good and is_folded_right(run)
    assert "torn" in caplog.text


def test_damage_in_the_middle_is_mended_too(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    good = run.loss.read_bytes().rstrip()
    with run.loss.open("r+b") as file:
        file.seek(len(good) // 2)
        file.write(b"#" * 40)
    look(run)
    assert run.loss.read_bytes().rstrip() == good and is_folded_right(run)
    assert "torn" in caplog.text and run.loss.with_name(".loss.json.torn").exists()


def test_an_entry_that_rotted_where_the_state_vouched_for_it_is_found(
    run: RunDir, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins and ends as an entry does: only who reads it, or its digest, sees it."""
    good = run.loss.read_bytes().rstrip()
    spoilt = good.replace(b'"lr":', b'"lr"!', 10).replace(b'"lr"!', b'"lr":', 9)
    assert spoilt != good
    run.loss.write_bytes(spoilt)
    look(run)
    assert run.loss.read_bytes().rstrip() == good and is_folded_right(run)
    assert "torn" in caplog.text


def test_a_loss_file_that_is_gone_is_made_anew(run: RunDir) -> None:
    good = run.loss.read_bytes()
    run.loss.unlink()
    look(run)
    assert run.loss.read_bytes() == good and is_folded_right(run)


@pytest.mark.parametrize("line", [0, 2, -1])
def test_a_damaged_plan_is_set_aside_and_gone_on_from(line: int, run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    before = [json.loads(text) for text in run.plan.read_text().splitlines()]
    lines = run.plan.read_bytes().splitlines(True)
    lines[line] = b"{" + b"#" * (len(lines[line]) - 2) + b"\n"
    run.plan.write_bytes(b"".join(lines))
    go_on(run, 100)
    assert (run.root / "plan.jsonl.bad").read_bytes() == b"".join(lines) and "damaged" in caplog.text
    assert [entry["step"] for entry in entries(run)] == list(range(1, 101)) and is_folded_right(run)
    after = {found.plan.round: found.plan.to_json() for found in planfile.read(run.plan)}
    if line == -1:  # the newest line is planned anew, from what was folded, and comes out the same
        assert after[before[-1]["round"]] == {name: before[-1][name] for name in after[before[-1]["round"]]}


def test_an_event_that_cannot_be_read_is_said_and_passed_over(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    path = segments(run.events)[-1]
    path.write_bytes(re.sub(rb'\{"event":"step",[^\n]*"step":30,[^\n]*', b"{gibberish", path.read_bytes()))
    run.loss.unlink()
    go_on(run, 80)
    assert "cannot be read" in caplog.text
    assert [entry["step"] for entry in entries(run)] == [step for step in range(1, 81) if step != 30]


def test_events_of_another_form_are_said_and_passed_over(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    kinds = ("start", "step", "fallback", "audit")
    with segments(run.events)[-1].open("ab") as file:
        for kind in kinds:
            file.write(b'{"event":"%s","time":"now","step":"x"}\n' % kind.encode())
        for kind in kinds[1:]:
            file.write(b'{"event":"%s","time":"now","step":%d}\n' % (kind.encode(), STEPS + 1))
    good = entries(run)
    look(run)
    assert caplog.text.count("cannot be read") == 4 and caplog.text.count("cannot be used") == 3
    assert entries(run) == good and is_folded_right(run)


def test_a_step_that_came_out_differently_supersedes_and_is_not_folded(
    run: RunDir, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a change of library versions: steps 51 to 60 are trained again from checkpoint 50."""
    old = run.loss.read_bytes().rstrip(b"] \n")
    folded = json.loads(run.state.read_bytes())["arms"]
    run.checkpoint(60).unlink()
    real = dry.loss_of
    monkeypatch.setattr(dry, "loss_of", lambda arm, cursor: 1.5 * real(arm, cursor))
    for _ in range(2):  # a second replay that comes out as the first adds nothing
        trainer = DryTrainer(run, lambda: False)
        trainer.train(STEPS - 1)
    look(run)
    found = entries(run)
    assert run.loss.read_bytes().startswith(old)
    assert [(e["step"], e["attempt"]) for e in found[STEPS:]] == [(step, 2) for step in range(51, STEPS)]
    inforce = latest(read(run.loss))
    assert inforce[55]["loss"] == pytest.approx(1.5 * found[54]["loss"]) and inforce[STEPS]["attempt"] == 1
    assert json.loads(run.state.read_bytes())["arms"] == folded and is_folded_right(run)
    assert "differently" in caplog.text
    run.state.unlink()  # the events are read once more from their beginning: nothing is added
    look(run)
    assert entries(run) == found


def test_a_refusal_in_the_middle_of_folding_leaves_nothing_out(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = RunDir(Path(shutil.copytree(run.root, run.root.with_name("twin"))))
    go_on(twin, 100)
    proxy, real, refused = desk(run), Desk._observe, list[int]()

    def refuse(self: Desk, entry: Entry) -> None:
        if entry["step"] % 13 == 0 and entry["step"] not in refused:
            refused.append(entry["step"])
            raise OSError(errno.EMFILE, "Too many open files")
        real(self, entry)

    monkeypatch.setattr(Desk, "_observe", refuse)

    turns = iter(range(1000))

    def wait() -> bool:
        with suppress(OSError):
            proxy.turn()
        return next(turns, None) is not None

    proxy.turn()
    DryTrainer(run, wait).train(100)
    for _ in range(9):
        wait()
    proxy.close()
    assert refused and is_folded_right(run)
    assert json.loads(run.state.read_bytes())["fold"] == json.loads(twin.state.read_bytes())["fold"]


def test_an_entry_that_rotted_into_another_number_is_told_of(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    good = run.loss.read_bytes()
    spoilt = good.replace(b'"tokens":128', b'"tokens":129', 1)
    assert spoilt != good
    run.loss.write_bytes(spoilt)
    look(run)
    assert run.loss.read_bytes() == spoilt
    assert caplog.text.count("the entry of step 1 is not what its event says") == 1


def test_a_full_disk_makes_it_wait(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = RunDir(Path(shutil.copytree(run.root, run.root.with_name("twin"))))
    go_on(twin, 100)
    proxy, full = desk(run), [False]
    for name in ("pwrite", "write"):
        real: Callable[..., int] = getattr(os, name)

        def refuse(fd: int, data: bytes, *more: int, real: Callable[..., int] = real) -> int:
            if full[0] and not os.readlink(f"/proc/self/fd/{fd}").endswith("01.jsonl"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data, *more)

        monkeypatch.setattr(os, name, refuse)
    proxy.turn()

    def wait() -> bool:
        if full[0]:
            with pytest.raises(OSError, match="No space"):
                proxy.turn()
            full[0] = False
        proxy.turn()
        return True

    trainer = DryTrainer(run, wait)
    for step in range(STEPS, 100):
        full[0] = step % 7 == 0
        trainer.train(step + 1)
    wait()
    proxy.close()
    assert entries(run) == entries(twin) and run.plan.read_bytes() == twin.plan.read_bytes() and is_folded_right(run)


def test_a_missing_shard_is_named(run: RunDir) -> None:
    arms = json.loads(run.plan.read_text().splitlines()[0])["arms"]
    (run.data / f"{arms['sums']}.train.bin").unlink()
    with pytest.raises(BadConfig) as fault:
        desk(run)
    text = str(fault.value)
    assert "sums" in text and arms["sums"] in text and "andrea prepare RUN" in text
    with pytest.raises(BadConfig, match=arms["sums"]):
        DryTrainer(run, lambda: False)


def test_a_run_that_begins_with_weights_from_elsewhere(make: Make) -> None:
    run = make("imported", {"optimizer": {"max_steps": 6000}})
    run.checkpoint(5000).write_bytes(b"weights")
    proxy = desk(run)
    proxy.turn()
    assert [line.plan.first for line in planfile.read(run.plan)] == [5001, 5011]
    DryTrainer(run, served(proxy)).train(5050)
    proxy.turn()
    proxy.close()
    assert [entry["step"] for entry in entries(run)] == list(range(5001, 5051)) and is_folded_right(run)
    assert all(entry["flags"] == [] for entry in entries(run))
    run.state.unlink()
    look(run)
    assert is_folded_right(run)


def test_the_first_step_on_record_may_lie_behind_a_hole(make: Make) -> None:
    run = make("holed", {"run": {"plan_wait": 60.0}})
    proxy = desk(run)
    proxy.turn()
    proxy.close()
    before = {path: path.read_bytes() for path in (run.loss, run.state)}
    proxy = desk(run)
    DryTrainer(run, served(proxy)).train(4)
    proxy.close()
    (segment,) = segments(run.events)
    lines = segment.read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if (event := json.loads(line))["event"] != "step" or event["step"] == 4]
    assert len(kept) == len(lines) - 3
    segment.write_bytes(b"".join(kept))
    for path, content in before.items():
        path.write_bytes(content)
    assert is_folded_right(run)
    look(run)
    assert is_folded_right(run)


def test_a_proxy_that_comes_after_the_trainer(make: Make) -> None:
    """500 steps without a proxy; `policy.toml` has been edited meanwhile, so that is a pivot."""
    run = make("late", {"optimizer": {"max_steps": 2000}})
    trainer = DryTrainer(run, lambda: False)
    trainer.train(500)
    first = run.policy_toml.read_text()
    run.policy_toml.write_text(first.replace("[arms.sums]", "cap = 0.6\n[arms.sums]"))
    proxy = desk(run)
    proxy.turn()
    lines = list(planfile.read(run.plan))
    assert [line.plan.round for line in lines] == list(range(52)) and all(line.fallback for line in lines[:50])
    assert lines[0].policy_text == first and lines[50].plan.policy.startswith("500-")
    trainer = DryTrainer(run, served(proxy))
    trainer.train(600)
    proxy.turn()
    proxy.close()
    assert [entry["step"] for entry in entries(run)] == list(range(1, 601)) and is_folded_right(run)
    assert latest(read(run.loss))[600]["policy"].startswith("500-") and run.archived(500).is_dir()


def test_another_batch_size_is_gone_over_to(run: RunDir) -> None:
    """run.toml is changed by hand and both are started anew: one round falls back, then plans fit again."""
    text = run.run_toml.read_text()
    run.run_toml.write_text(re.sub(r"batch_size = 4 ", "batch_size = 6 ", text))
    proxy = desk(run)
    proxy.turn()
    trainer = DryTrainer(run, served(proxy, patient=False))
    while trainer.step < 120:
        trainer.train(trainer.step + 1)
        proxy.turn()
    proxy.close()
    entry = latest(read(run.loss))
    assert entry[61]["flags"] == ["fallback"] and entry[120]["flags"] == []
    assert sum(pulls for pulls, *_ in entry[120]["arms"].values()) == 6


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("last", [STEPS, STEPS + 3, STEPS + 13])
def test_a_plan_that_is_gone_is_made_again_as_the_trainer_took_it_up(
    last: int, state: bool, run: RunDir, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At a checkpoint, behind one, or a round behind one: the same lines from the first one on, and the same steps."""
    whole = quiet(RunDir(Path(shutil.copytree(run.root, tmp_path / "whole"))), 2 * STEPS)
    quiet(run, last)
    run.plan.unlink()
    if not state:
        run.state.unlink()
    proxy, looks = desk(run), iter(range(20))

    def wait() -> bool:
        proxy.turn()
        return next(looks, None) is not None

    DryTrainer(run, wait).train(2 * STEPS)
    proxy.turn()
    proxy.close()
    assert "plan.jsonl lacked lines: made anew, as the events have it, up to step" in caplog.text
    assert not any(event["event"] == "fallback" for event in events.read(run.events))
    assert run.plan.read_bytes() == whole.plan.read_bytes() and entries(run) == entries(whole)
    assert is_folded_right(run)


def test_a_plan_that_is_gone_before_the_first_checkpoint_begins_anew(make: Make) -> None:
    run = make("early", {"checkpoint": {"every": 1000}, "probe": {"every": 1000}})
    quiet(run, 25)
    before = run.plan.read_bytes()
    run.plan.unlink()
    look(run)
    assert run.plan.read_bytes() == before
