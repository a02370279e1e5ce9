"""Pivots with both processes: another policy from S+1 on, the same weights, nothing paused, every act finished."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from andrea_corpus.prepare import prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir import planfile, policy
from andrea_rundir.entries import latest, read
from andrea_rundir.events import read as read_events
from andrea_rundir.names import RunDir
from andrea_rundir.plan import policy_start
from harness import Trainer, entries, sidecar_diff, start, start_proxy, twin_diff, until
from harness.twin import plan_in_force

LAST, CADENCE = 80, 10
PATIENT = {
    "run": {"plan_wait": 600.0},
    "optimizer": {"max_steps": LAST},
    "checkpoint": {"every": CADENCE, "keep_last": 2},
    "probe": {"every": 40},
}

Make = Callable[..., RunDir]


@pytest.fixture(scope="module")
def third(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("third") / "third.txt"
    path.write_text("abc, abd, abe; what follows is not known yet\n" * 200)
    return path


def another(sources: dict[str, Path], third: Path) -> str:
    """`prose` runs on under another name, `sums` is dropped, `third` is new."""
    return (
        f'learner = "ucb1"\n[arms.novels]\npath = "{sources["prose"]}"\ncap = 0.75\n'
        f'[arms.third]\npath = "{third}"\nfloor = 0.25\n'
    )


def prepared(run: RunDir, text: str, place: Path) -> None:
    """Write the policy to `place`, its shards made."""
    rules = policy.parse(text, "the test", run.root)
    prepare(run, rules, ByteTokenizer(), held_out=0.1, context=32)
    place.write_text(text)


def train_to(run: RunDir, step: int) -> None:
    with start(run, "--until-step", str(step)) as trainer:
        end_well(trainer)


def end_well(process: Trainer) -> None:
    assert process.wait(120) == 0, process.said()


def recorded(run: RunDir, step: int = LAST) -> Callable[[], bool]:
    return lambda: max((entry["step"] for entry in read(run.loss)), default=0) >= step


def finish(run: RunDir) -> None:
    with start_proxy(run) as proxy, start(run) as trainer:
        end_well(trainer)
        until("all is recorded", recorded(run))
        until("the pivot is finished", lambda: not run.policy_pending.exists())
        assert proxy.stop() == 0, proxy.said()


def pivoted(make: Make, name: str, text: str) -> RunDir:
    """Trained to step 25 with a proxy; then the request is made, and claimed while nothing trains: S is 40."""
    run = make(name, PATIENT)
    with start_proxy(run) as proxy:
        train_to(run, 25)
        until("all is recorded and planned", lambda: recorded(run, 25)() and lines(run) >= 4)
        prepared(run, text, run.policy_next)
        until("it is claimed", run.policy_pending.exists)
        assert proxy.stop() == 0, proxy.said()
    return run


def lines(run: RunDir) -> int:
    return run.plan.read_bytes().count(b"\n")


def policies(run: RunDir) -> list[str]:
    found = [entry["policy"] for entry in latest(read(run.loss)).values()]
    return sorted(set(found), key=policy_start)


@pytest.fixture(scope="module")
def whole(make: Make, sources: dict[str, Path], third: Path) -> RunDir:
    """A pivot to which nothing happened."""
    run = pivoted(make, "whole", another(sources, third))
    finish(run)
    return run


def test_the_new_policy_begins_after_s_with_cursors_that_run_on(
    whole: RunDir, sources: dict[str, Path], third: Path
) -> None:
    old, new = policies(whole)
    entries = latest(read(whole.loss))
    assert (old.partition("-")[0], new.partition("-")[0]) == ("0", "40")
    assert all((entry["policy"] == old) == (step <= 40) for step, entry in entries.items())
    steps = {event["step"]: event for event in read_events(whole.events) if event["event"] == "step"}
    first = next(line for line in planfile.first_lines(whole.plan) if line.plan.policy == new)
    assert first.plan.first == 41 and set(first.plan.credits.values()) == {0}
    assert first.plan.cursors == {"novels": steps[40]["cursors"]["prose"], "third": 0}
    assert steps[LAST]["cursors"].keys() == {"novels", "third"}
    assert first.policy_text == another(sources, third) == whole.policy_toml.read_text()
    assert not whole.policy_next.exists() and not whole.policy_pending.exists()
    state = json.loads(whole.state.read_bytes())
    assert state["policy"] == new and state["learner"] == "ucb1" and state["arms"].keys() == {"novels", "third"}
    assert [arm["arm"] for arm in state["retired"]] == ["prose", "sums"]
    assert state["arms"]["third"]["pulls"] + state["arms"]["novels"]["pulls"] == 4 * (LAST - 40)
    audits = json.loads(whole.samples.read_bytes())["audits"]
    assert [audit["step"] for audit in audits] == list(range(50, LAST + 1, CADENCE))


def test_the_archive_holds_what_the_old_policy_left(whole: RunDir) -> None:
    folder = whole.archived(40)
    assert sorted(path.name for path in folder.iterdir()) == [
        ".samples.json",
        ".state.json",
        "policy.toml",
        "step_000040.bin",
    ]
    state = json.loads((folder / ".state.json").read_bytes())
    assert (state["step"], state["policy"]) == (40, policies(whole)[0])
    assert sum(arm["pulls"] for arm in state["arms"].values()) == 4 * 40
    audits = json.loads((folder / ".samples.json").read_bytes())["audits"]
    assert [audit["step"] for audit in audits][-1] == 40 and audits[0]["step"] == 0
    assert not whole.checkpoint(40).exists() and (folder / "step_000040.bin").stat().st_size > 1000


def at(where: str, call: int, *, after: bool = False) -> dict[str, object]:
    return {"at": where, "call": call, "do": "KILL", "after": after}


ARCHIVE = "andrea_proxy.pivot:Pivot.archive"
LINK = "os:link"
SAVE = "andrea_rundir.sidecars:save"
PLAN = "andrea_rundir.planfile:PlanFile.append"
RENAME = "andrea_proxy.pivot:Path.rename"
STOPS = [
    at(PLAN, 1),
    at(PLAN, 1, after=True),
    at(ARCHIVE, 1),
    at(LINK, 1),
    at(LINK, 1, after=True),
    at("andrea_proxy.pivot:publish", 1),
    at("andrea_proxy.pivot:publish", 1, after=True),
    at("andrea_proxy.pivot:fsync_dir", 1),
]
SAVE_IMAGE = "andrea_train.saver:publish_image"
ADOPT = "andrea_train.loop:Loop.adopt"
# From step 25, then from 30: before and after the checkpoint of S is there; from 40: before and after the first batch.
TRAINER_STOPS = [at(SAVE_IMAGE, 2), at(SAVE_IMAGE, 1, after=True), at(ADOPT, 1), at(ADOPT, 1, after=True)]


def test_a_pivot_killed_anywhere_is_finished(make: Make, sources: dict[str, Path], third: Path, whole: RunDir) -> None:
    run = pivoted(make, "hurt", another(sources, third))
    ends = iter(TRAINER_STOPS)
    trainer = start(run, hurt=[next(ends)])

    def moved(proxy: Trainer) -> bool:
        """The proxy has ended, or all is done; a trainer that was killed is started again, for its next point."""
        nonlocal trainer
        if trainer.process.poll() == -9:
            trainer = start(run, hurt=[point] if (point := next(ends, None)) else None)
        return proxy.process.poll() is not None or done(run, trainer)

    for point in STOPS:
        with start_proxy(run, hurt=[point]) as proxy:
            until(f"{point} is reached", partial(moved, proxy))
            assert proxy.wait(10) == -9, f"{point} was not reached: {proxy.said()}"
    with start_proxy(run) as proxy:
        until("all is done", partial(moved, proxy))
        assert proxy.stop() == 0, proxy.said()
    assert next(ends, None) is None
    assert twin_diff(run, whole, LAST, cadence=CADENCE) == []
    assert sidecar_diff(run, whole) == []
    for name in (".state.json", ".samples.json", "policy.toml", "step_000040.bin"):
        mine, theirs = (json_or_bytes(r.archived(40) / name) for r in (run, whole))
        assert mine == theirs, name
    assert run.policy_toml.read_text() == whole.policy_toml.read_text()


def done(run: RunDir, trainer: Trainer) -> bool:
    return trainer.process.poll() == 0 and recorded(run)() and not run.policy_pending.exists()


def json_or_bytes(path: Path) -> Any:
    data = path.read_bytes()
    if path.suffix != ".json":
        return data
    content = json.loads(data)
    for audit in content.get("audits", []):
        audit["time"], audit["on_disk"] = "", True
    return content


def test_a_hand_edited_policy_is_a_pivot_at_the_next_start(
    make: Make, sources: dict[str, Path], third: Path, whole: RunDir
) -> None:
    """The lesson's own sequence: stop, edit, start; with a trainer that runs on."""
    run = make("edited", PATIENT)
    with start_proxy(run) as proxy:
        train_to(run, 25)
        until("all is recorded and planned", lambda: recorded(run, 25)() and lines(run) >= 4)
        assert proxy.stop() == 0, proxy.said()
    prepared(run, another(sources, third), run.policy_toml)
    finish(run)
    assert twin_diff(run, whole, LAST, cadence=CADENCE) == [] and sidecar_diff(run, whole) == []


@pytest.mark.parametrize("state", [True, False])
def test_a_policy_whose_plan_line_is_gone_is_found_in_the_events(state: bool, whole: RunDir, tmp_path: Path) -> None:
    """No start event tells of the new policy, but that of its first round does."""
    kept, bereft = (RunDir(Path(shutil.copytree(whole.root, tmp_path / name))) for name in ("kept", "bereft"))
    bereft.plan.unlink()
    if not state:
        bereft.state.unlink()
    for run in (kept, bereft):
        run.run_toml.write_text(run.run_toml.read_text().replace(f"max_steps = {LAST}", f"max_steps = {LAST + 20}"))
        with start_proxy(run) as proxy, start(run) as trainer:
            end_well(trainer)
            until("all is recorded", recorded(run, LAST + 20))
            assert proxy.stop() == 0, proxy.said()
    assert twin_diff(bereft, kept, LAST + 20, cadence=CADENCE) == [] and entries(bereft) == entries(kept)
    assert plan_in_force(bereft) == plan_in_force(kept)


def test_a_plan_that_is_removed_after_a_pivot_is_made_again_under_both(
    make: Make, sources: dict[str, Path], third: Path, whole: RunDir
) -> None:
    run = pivoted(make, "removed", another(sources, third))
    with start_proxy(run) as proxy, start(run) as trainer:
        until("it is trained under the new policy", recorded(run, 53))
        run.plan.unlink()
        end_well(trainer)
        until("all is recorded", recorded(run))
        assert proxy.stop() == 0, proxy.said()
    assert twin_diff(run, whole, LAST, cadence=CADENCE) == [] and entries(run) == entries(whole)


BAD = {
    "floors over one": ("floor = 0.25", "floor = 1.0\n[arms.more]\npath = 'x'\nfloor = 0.5", "sum to more than 1"),
    "not prepared": ("third.txt", "fourth.txt", "not prepared"),
    "no TOML": ("[arms.third]", "[arms.third", "TOML"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_edit_that_cannot_be_used_ends_the_proxy_and_not_the_training(
    name: str, make: Make, sources: dict[str, Path], third: Path
) -> None:
    run = make(f"bad-{name}".replace(" ", "-"), PATIENT)
    with start_proxy(run) as proxy:
        until("two rounds are planned", lambda: run.plan.exists() and lines(run) >= 2)
        assert proxy.stop() == 0, proxy.said()
    good = run.policy_toml.read_text()
    old, new, words = BAD[name]
    run.policy_toml.write_text(another(sources, third).replace(old, new))
    with start_proxy(run) as proxy:
        assert proxy.wait() == 78 and words in proxy.said(), proxy.said()
    run.policy_next.write_text(run.policy_toml.read_text())
    run.policy_toml.write_text(good)
    with start_proxy(run) as proxy:
        until("the request is refused", lambda: not run.policy_next.exists())
        assert proxy.stop() == 0, proxy.said()
    assert words in proxy.said() and not run.policy_pending.exists()
    assert (run.root / "policy.next.toml.bad").exists() and lines(run) == 2


def test_a_request_that_is_still_being_written_is_waited_for(make: Make, sources: dict[str, Path], third: Path) -> None:
    """An editor makes the file first and fills it then; one that stays empty is refused like any that is no policy."""
    run, text = make("slow", PATIENT), another(sources, third)
    with start_proxy(run) as proxy:
        until("two rounds are planned", lambda: run.plan.exists() and lines(run) >= 2)
        prepared(run, text, run.root / "elsewhere.toml")
        with run.policy_next.open("w") as file:
            time.sleep(0.2)  # looks are made meanwhile: one right away
            file.write(text)
        until("it is claimed", run.policy_pending.exists)
        assert "refused" not in proxy.said()
        run.policy_pending.unlink()
        run.policy_next.touch()
        until("the empty one is refused", lambda: not run.policy_next.exists(), timeout=20)
        assert proxy.stop() == 0, proxy.said()
    assert run.policy_pending.exists() is False and "refused" in proxy.said()
