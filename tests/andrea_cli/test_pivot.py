from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from andrea_cli.fate import save_first
from andrea_cli.main import main
from andrea_rundir import planfile
from andrea_rundir.entries import latest, read
from andrea_rundir.eventlog import EventLog
from andrea_rundir.faults import Refused
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_rundir.plan import SHARE_UNIT, policy_start
from andrea_service import identity
from harness import sidecar_diff
from harness.commands import Andrea, snapshot
from harness.dry import DryTrainer, any_schedule, desk, look, quiet, served
from harness.writes import Killed, full_at, killed_at

LAST, CADENCE = 120, 10
CHANGES = {"optimizer": {"max_steps": LAST}, "checkpoint": {"every": CADENCE}}

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

Make = Callable[..., RunDir]
Copy = Callable[[str], RunDir]


@pytest.fixture(scope="module")
def at_25(make: Make) -> RunDir:
    """Trained to step 25 and planned to step 40; nobody is at work."""
    return quiet(make("at-25", CHANGES), 25)


@pytest.fixture
def copy(at_25: RunDir, tmp_path: Path) -> Copy:
    return lambda name: RunDir(Path(shutil.copytree(at_25.root, tmp_path / name)))


@pytest.fixture
def run(copy: Copy) -> RunDir:
    return copy("run")


def wish(run: RunDir, text: str) -> Path:
    file = run.root.with_name("wish.toml")
    file.write_text(text)
    return file


WRONG: dict[str, tuple[list[str], int, list[str]]] = {
    "floors over 1": (
        ["--floor", "prose=0.7", "--floor", "sums=0.4"],
        78,
        ["floors sum to more than 1", "found:    1.1"],
    ),
    "caps under 1": (["--cap", "prose=0.3", "--cap", "sums=0.45"], 78, ["caps sum to less than 1", "found:    0.75"]),
    "floor over cap": (["--cap", "prose=0.3", "--floor", "prose=0.4"], 78, ["floor 0.4, cap 0.3", "arms.prose"]),
    "unknown arm": (["--cap", "porse=0.3"], 2, ["did you mean prose?"]),
    "no share": (["--cap", "prose=30"], 2, ["is not ARM=X with X from 0 to 1"]),
    "no number": (["--floor", "prose"], 2, ["is not ARM=X"]),
    "nothing": ([], 2, ["--policy FILE, or --cap and --floor"]),
    "both": (["--policy", "x.toml", "--cap", "prose=0.3"], 2, ["--policy FILE, or --cap"]),
    "no file": (["--policy", "/nowhere/x.toml"], 78, ["/nowhere/x.toml", "No such file"]),
    "in force": (["--cap", "prose=1.0"], 1, ["in force already"]),
    "nothing to undo": (["--abort"], 1, ["no request to undo"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_changes_nothing(name: str, andrea: Andrea, at_25: RunDir) -> None:
    options, code, words = WRONG[name]
    before = snapshot(at_25.root)
    done = andrea("pivot", at_25.root, *options)
    assert done.code == code and all(word in done.err for word in words), done.err
    assert snapshot(at_25.root) == before


def test_sources_that_are_not_prepared_are_named_with_what_prepares_them(andrea: Andrea, run: RunDir) -> None:
    source = run.root.with_name("more.txt")
    source.write_text("more of it, and more of that\n" * 300)
    file = wish(run, run.policy_toml.read_text() + f'[arms.more]\npath = "{source}"\n')
    before = snapshot(run.root)
    done = andrea("pivot", run.root, "--policy", file)
    assert done.code == 78 and "not prepared" in done.err and snapshot(run.root) == before
    said = re.search(r"run `andrea (.*)`", done.err)
    assert said is not None and andrea(*said[1].split()).code == 0
    assert andrea("pivot", run.root, "--policy", file, "--no-wait").code == 0


def test_a_limit_that_a_phase_has_of_its_own_is_not_changed_beside_it(andrea: Andrea, make: Make) -> None:
    rules = "[[phases]]\nname = 'first'\nuntil_step = 20\ncap = { sums = 0.5 }\n"
    rules += "[[phases]]\nname = 'rest'\nfloor = { sums = 0.2 }\n"
    run = quiet(make("phases", CHANGES, rules=rules), 25)
    done = andrea("pivot", run.root, "--floor", "sums=0.1")
    assert done.code == 1 and "phase rest has a floor of its own" in done.err and "found:    floor 0.2" in done.err
    done = andrea("pivot", run.root, "--cap", "sums=0.4", "--dry-run", "--json")  # that phase is over
    limits = {row["arm"]: (row["floor"], row["new_floor"], row["new_cap"]) for row in done.json["arms"]}
    assert limits == {"prose": (0.0, 0.0, 1.0), "sums": (0.2, 0.2, 0.4)}


def test_a_run_that_ends_before_the_boundary_is_not_asked(andrea: Andrea, run: RunDir) -> None:
    quiet(run, LAST - 5)
    done = andrea("pivot", run.root, "--cap", "prose=0.3")
    assert done.code == 1 and "the next boundary is step 120, the run ends at 120" in done.err
    quiet(run, LAST)
    log = EventLog(run.events)
    log.append("stop", step=LAST, reason="finished")
    log.close()
    run.train_lock.touch()
    assert andrea("pivot", run.root, "--cap", "prose=0.3").code == 1


@pytest.mark.parametrize(("begun", "done", "boundary"), [(0, 0, 10), (0, 25, 30), (5000, 0, 5000), (5000, 5025, 5030)])
def test_a_run_that_never_had_a_proxy(begun: int, done: int, boundary: int, andrea: Andrea, make: Make) -> None:
    """Rounds that the trainer began by itself are finished; weights may come from elsewhere."""
    run = make(f"alone-{begun}-{done}", {**CHANGES, "optimizer": {"max_steps": 6000}})
    if begun:
        run.checkpoint(begun).write_bytes(b"weights")
    if done:
        DryTrainer(run, lambda: False).train(done)
        run.checkpoint(done).write_bytes(b"weights")
    shown = andrea("pivot", run.root, "--cap", "prose=0.3", "--no-wait", "--json").json
    assert shown["step"] == boundary and {row["share"] for row in shown["arms"]} == {None}
    quiet(run, begun + 60)
    assert boundary_of(run) == boundary


def test_a_dry_run_shows_what_then_comes(andrea: Andrea, run: RunDir, sources: dict[str, Path]) -> None:
    text = (
        f'learner = "ucb1"\n[arms.novels]\npath = "{sources["prose"]}"\ncap = 0.6\nfloor = 0.1\nprior = 3.0\n'
        f'[arms.sums]\npath = "{sources["sums"]}"\nfloor = 0.25\n'
    )
    file = wish(run, text)
    assert andrea("prepare", run.root, "--policy", file).code == 0
    before = snapshot(run.root)
    done = andrea("pivot", run.root, "--policy", file, "--dry-run")
    assert done.code == 0 and snapshot(run.root) == before
    share = next(iter(planfile.read_back(run.plan))).plan.shares
    prose, sums = (f"{share[arm] / SHARE_UNIT:.1%}" for arm in ("prose", "sums"))
    old = next(iter(planfile.read(run.plan))).plan.policy
    assert [" ".join(line.split()) for line in done.out.splitlines()] == [
        f"policy {old} ends with step 40; the learner (slope -> ucb1) begins anew",
        "arm text floor cap share",
        "novels was prose - -> 10.0% - -> 60.0% - -> 60.0%",
        f"prose now novels 0.0% -> - 100.0% -> - {prose} -> -",
        f"sums same 0.0% -> 25.0% 100.0% -> 100.0% {sums} -> 40.0%",
    ]
    shown = andrea("pivot", run.root, "--policy", file, "--dry-run", "--json").json
    assert (shown["state"], shown["step"], shown["before"], shown["policy"]) == ("dry run", 40, old, None)
    assert andrea("pivot", run.root, "--policy", file, "--no-wait").code == 0
    quiet(run, 60)
    first = planfile.first_lines(run.plan)[-1].plan
    assert (first.first, policy_start(first.policy)) == (41, 40)
    assert {arm: units / SHARE_UNIT for arm, units in first.shares.items()} == {
        row["arm"]: row["new_share"] for row in shown["arms"] if row["new_share"] is not None
    }


def test_with_nobody_at_work_the_request_waits_and_can_be_undone(andrea: Andrea, run: RunDir) -> None:
    before = snapshot(run.root)
    done = andrea("pivot", run.root, "--cap", "prose=0.3")
    assert done.code == 0
    for words in (
        "takes effect after step 40 or later",
        f"to undo it: andrea pivot {run.root} --abort",
        "andrea-proxy does not run",
        "The pivot waits for it.",
        "andrea-train was never started here",
        f"Start it: andrea-train --run {run.root}",
    ):
        assert words in done.out
    assert "cap = 0.3" in run.policy_next.read_text()
    again = andrea("pivot", run.root, "--cap", "prose=0.4")
    assert again.code == 1 and "another pivot is asked for" in again.err and str(run.policy_next) in again.err
    assert "cap = 0.3" in run.policy_next.read_text()
    undone = andrea("pivot", run.root, "--abort", "--json")
    assert undone.code == 0 and undone.json["state"] == "undone" and snapshot(run.root) == before
    assert andrea("pivot", run.root, "--abort").code == 1


def test_a_claimed_request_can_only_be_waited_for(andrea: Andrea, run: RunDir) -> None:
    assert andrea("pivot", run.root, "--cap", "prose=0.3", "--no-wait").code == 0
    look(run)
    for options, words in ((["--abort"], "too late"), (["--cap", "prose=0.4"], "another pivot is under way")):
        done = andrea("pivot", run.root, *options)
        assert done.code == 1 and words in done.err and "takes effect after step 40" in done.err
    quiet(run, 35)  # round 41 to 50 is planned
    done = andrea("pivot", run.root, "--abort")
    assert done.code == 1 and re.search(r"found: +policy 40-[0-9a-f]{12}, from step 41 on", done.err)
    quiet(run, 60)
    assert "cap = 0.3" in run.policy_toml.read_text()
    assert andrea("pivot", run.root, "--cap", "prose=0.4", "--no-wait", "--json").json["step"] == 80


def test_a_trainer_that_has_just_ended_needs_no_checkpoint(run: RunDir) -> None:
    save_first(run)
    with Lock.acquire(run.train_lock, identity.me("another")), pytest.raises(Refused):
        save_first(run, only="somebody else")  # it lives, and is not meant


def test_an_edited_policy_is_a_pivot_already(andrea: Andrea, run: RunDir) -> None:
    run.policy_toml.write_text(run.policy_toml.read_text() + "cap = 0.9\n")
    before = snapshot(run.root)
    done = andrea("pivot", run.root, "--cap", "prose=0.3")
    assert done.code == 1 and "policy.toml was edited by hand" in done.err and snapshot(run.root) == before
    run.policy_toml.unlink()  # as it says
    look(run)
    assert andrea("pivot", run.root, "--cap", "prose=0.3", "--no-wait").code == 0


@pytest.mark.parametrize("claimed", [False, True])
def test_a_source_that_vanishes_after_the_request_undoes_it(claimed: bool, andrea: Andrea, run: RunDir) -> None:
    source = run.root.with_name("more.txt")
    source.write_text("more of it, and more of that\n" * 300)
    file = wish(run, run.policy_toml.read_text() + f'[arms.more]\npath = "{source}"\n')
    made = andrea("prepare", run.root, "--policy", file, "--json").json["arms"]["more"]["fingerprint"]
    assert andrea("pivot", run.root, "--policy", file, "--no-wait").code == 0
    if claimed:
        look(run)
        assert run.policy_pending.exists()
    (run.data / f"{made}.train.bin").unlink()
    quiet(run, 60)
    assert not run.policy_next.exists() and not run.policy_pending.exists()
    kept = (run.root / "policy.next.toml.bad").read_text()
    assert kept.startswith("# refused: the shard of arm more") and made in kept and "[arms.more]" in kept
    assert {entry["policy"] for entry in read(run.loss)} == {next(iter(read(run.loss)))["policy"]}
    assert andrea("prepare", run.root, "--policy", file).code == 0
    assert andrea("pivot", run.root, "--policy", file, "--no-wait").code == 0  # and the way is free
    quiet(run, 100)
    assert {entry["policy"].split("-")[0] for entry in read(run.loss)} == {"0", "80"}


def test_a_full_disk_refuses_the_request(andrea: Andrea, at_25: RunDir, mount: Callable[..., Path]) -> None:
    small = mount("tmpfs", "size=8m")
    run = RunDir(Path(shutil.copytree(at_25.root, small / "run")))
    with (small / "filler").open("wb") as file:
        free = os.statvfs(small)
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
    before = snapshot(run.root)
    done = andrea("pivot", run.root, "--cap", "prose=0.3")
    assert done.code == 1 and "No space left on device" in done.err and snapshot(run.root) == before
    (small / "filler").unlink()
    assert andrea("pivot", run.root, "--cap", "prose=0.3", "--no-wait").code == 0


@pytest.mark.parametrize(("step", "boundary"), [(112_619, 112_700), (112_679, 112_700), (112_690, 112_800)])
def test_the_boundary_of_a_long_history(step: int, boundary: int, andrea: Andrea, make: Make) -> None:
    """Weights from elsewhere, of step 112,000, and a made-up history from there on; rounds of 20, cadence 100."""
    run = make(
        f"at-{step}", {"optimizer": {"max_steps": 200_000}, "checkpoint": {"every": 100}, "probe": {"every": 1000}}
    )
    run.checkpoint(112_000).write_bytes(b"weights")
    proxy = desk(run)
    proxy.turn()
    trainer = DryTrainer(run, served(proxy))
    trainer.train(step)
    proxy.turn()
    old = run.loss.read_bytes().rstrip(b"] \n")
    planned = next(iter(planfile.read_back(run.plan))).plan.last
    assert (planned > 112_700) == (boundary == 112_800)
    assert andrea("pivot", run.root, "--floor", "sums=0.5", "--dry-run", "--json").json["step"] == boundary
    assert andrea("pivot", run.root, "--floor", "sums=0.5", "--no-wait", "--json").json["step"] == boundary
    proxy.turn()
    assert f"after step {boundary:,}" in andrea("pivot", run.root, "--abort").err
    trainer.train(boundary + 40)
    proxy.turn()
    proxy.close()
    starts = {s: policy_start(entry["policy"]) for s, entry in latest(read(run.loss)).items()}
    assert starts == {s: boundary if s > boundary else 0 for s in range(112_001, boundary + 41)}
    learnt = json.loads(run.state.read_bytes())["arms"].values()  # the same learner, begun anew
    assert sum(arm["pulls"] for arm in learnt) == 4 * 40
    assert run.loss.read_bytes().startswith(old) and "floor = 0.5" in run.policy_toml.read_text()
    assert (run.archived(boundary) / f"step_{boundary}.bin").read_bytes() == b"weights after %d" % boundary


NEW = "cap = 0.3"


@pytest.fixture(scope="module")
def undisturbed(at_25: RunDir, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], RunDir]:
    """The run whose pivot takes effect after a step, and to which nothing else happens; made once a step."""
    made: dict[int, RunDir] = {}

    def twin(step: int) -> RunDir:
        if step not in made:
            run = made[step] = RunDir(Path(shutil.copytree(at_25.root, tmp_path_factory.mktemp(f"s{step}") / "run")))
            quiet(run, step - 15)  # planned to `step` then
            assert main(["pivot", str(run.root), "--cap", "prose=0.3", "--no-wait"]) == 0
            quiet(run, LAST)
        return made[step]

    return twin


def boundary_of(run: RunDir) -> int:
    """The step after which the second policy of the plan begins; 0 without one."""
    return policy_start(planfile.first_lines(run.plan)[-1].plan.policy)


def is_whole(run: RunDir) -> None:
    """The pivot is wholly before or wholly after, whatever was killed."""
    under_way = [path for path in (run.policy_next, run.policy_pending) if path.exists()]
    assert len(under_way) <= 1 and all(NEW in path.read_text() for path in under_way)
    if NEW in run.policy_toml.read_text():
        assert not under_way and len(list(run.archived(boundary_of(run)).iterdir())) == 4
    elif not under_way:
        assert boundary_of(run) == 0 and not run.archive.exists()


@pytest.mark.parametrize("seed", range(15))
def test_trainer_proxy_and_command_killed_at_any_write(
    seed: int, copy: Copy, undisturbed: Callable[[int], RunDir]
) -> None:
    run, rng, asked = copy("run"), np.random.default_rng(seed), False

    def ask(step: int) -> None:
        nonlocal asked
        is_whole(run)
        if not asked:
            with killed_at(int(rng.integers(1, 12)) if step < LAST - 50 else 0):
                try:
                    assert main(["pivot", str(run.root), "--cap", "prose=0.3", "--no-wait"]) in (0, 1)
                    asked = True
                except Killed:
                    pass
        is_whole(run)

    any_schedule(run, rng, LAST - 40, also=ask)
    ask(LAST - 40)
    any_schedule(run, rng, LAST, also=ask)
    twin = undisturbed(boundary_of(run))
    assert sidecar_diff(run, twin) == []
    assert run.policy_toml.read_bytes() == twin.policy_toml.read_bytes()
    assert (run.archived(boundary_of(run)) / ".state.json").read_bytes() == (
        twin.archived(boundary_of(run)) / ".state.json"
    ).read_bytes()


@pytest.mark.parametrize("seed", range(5))
def test_a_proxy_whose_disk_is_full_again_and_again(
    seed: int, copy: Copy, undisturbed: Callable[[int], RunDir]
) -> None:
    run, rng = copy("run"), np.random.default_rng(seed)
    assert main(["pivot", str(run.root), "--cap", "prose=0.3", "--no-wait"]) == 0
    proxy = desk(run)

    def turn() -> bool:
        with full_at(int(rng.integers(1, 8))), suppress(OSError):
            proxy.turn()
        return True

    trainer = DryTrainer(run, turn)
    while trainer.step < LAST:
        turn()
        trainer.train(trainer.step + 1)
    proxy.turn()
    proxy.close()
    is_whole(run)
    assert boundary_of(run) == 40 and sidecar_diff(run, undisturbed(40)) == []
