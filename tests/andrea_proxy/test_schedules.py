"""The twin check in one process: the real feed and the real desk take turns in every order, killed at every write."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from andrea_corpus.prepare import prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir import planfile, policy
from andrea_rundir.entries import latest, read
from andrea_rundir.eventlog import EventLog
from andrea_rundir.events import read as read_events
from andrea_rundir.names import RunDir
from andrea_rundir.plan import policy_start
from harness import entries, sidecar_diff
from harness.dry import DryTrainer, Mortal, any_schedule, desk, look, quiet, served
from harness.twin import plan_in_force
from harness.writes import Killed, killed_at

LAST, CADENCE = 80, 10
RULES = """
max_epochs = 2.5
[[phases]]
name = "warm-up"
until_step = 30
[[phases]]
name = "prose-only"
until_step = 40
arms = ["prose"]
"""

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

Make = Callable[..., RunDir]


@pytest.fixture(scope="module")
def fresh(make: Make) -> RunDir:
    changes = {"optimizer": {"max_steps": LAST}, "checkpoint": {"every": CADENCE}}
    return make("fresh", changes, rules=RULES)


@pytest.fixture
def copy(fresh: RunDir, tmp_path: Path) -> Callable[[str], RunDir]:
    return lambda name: RunDir(Path(shutil.copytree(fresh.root, tmp_path / name)))


@pytest.fixture(scope="module")
def whole(fresh: RunDir, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    run = quiet(RunDir(Path(shutil.copytree(fresh.root, tmp_path_factory.mktemp("whole") / "run"))), LAST)
    assert [entry["step"] for entry in read(run.loss)] == list(range(1, LAST + 1))
    shares = {tuple(sorted(entry["arms"])) for entry in read(run.loss)}
    assert ("prose",) in shares and ("prose", "sums") in shares
    return run


def test_a_proxy_killed_at_every_write_it_makes(copy: Callable[[str], RunDir], whole: RunDir) -> None:
    """One life a turn: killed at its first write, the next at its second, and so on until one lives; then anew."""
    run, kills, call = copy("run"), 0, 1

    def turn() -> bool:
        nonlocal kills, call
        with killed_at(call):
            try:
                desk(run).turn()
            except Killed:
                kills, call = kills + 1, call + 1
            else:
                call = 1
        return True

    trainer = DryTrainer(run, turn)
    while trainer.step < LAST:
        turn()
        trainer.train(trainer.step + 1)
    look(run)
    assert kills > 60 and sidecar_diff(run, whole) == []


@pytest.mark.parametrize("seed", range(25))
def test_any_schedule_gives_the_same_files(seed: int, copy: Callable[[str], RunDir], whole: RunDir) -> None:
    run = copy("run")
    any_schedule(run, np.random.default_rng(seed), LAST)
    assert sidecar_diff(run, whole) == []


def impatient(run: RunDir, rng: np.random.Generator, also: Callable[[int], None] | None = None) -> None:
    """Steps, turns and ends of either in random order up to the last step; the trainer gives up waiting at random.
    `also` is called now and then, with the step."""
    proxy = Mortal(run, rng, 200)

    def turn() -> bool:
        return proxy.turn() and bool(rng.integers(3))

    trainer = DryTrainer(run, turn)
    while trainer.step < LAST:
        match rng.integers(16):
            case 0:
                trainer = DryTrainer(run, turn)
            case 1 | 2:
                turn()
            case 3 if also is not None:
                also(trainer.step)
            case _:
                trainer.train(min(LAST, trainer.step + int(rng.integers(1, 12))))
    look(run)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_falls_back_is_replayed(seed: int, copy: Callable[[str], RunDir]) -> None:
    """The trainer gives up at random; a run that is given its fallback rounds beforehand becomes the same."""
    run = copy("run")
    impatient(run, np.random.default_rng(1000 + seed))
    assert [entry["step"] for entry in entries(run)] == list(range(1, LAST + 1))
    twin = copy("twin")
    replay(run, twin)
    assert sidecar_diff(quiet(twin, LAST), run, fell_back=True) == []


def replay(run: RunDir, twin: RunDir) -> None:
    """Give `twin` the fallback rounds that `run` recorded."""
    log = EventLog(twin.events)
    for event in read_events(run.events):
        if event["event"] == "fallback":
            log.append("fallback", **{name: value for name, value in event.items() if name not in ("event", "time")})
    log.close()


ANOTHER = """\
learner = "ucb1"
[arms.novels]
path = "{prose}"
cap = 0.75
[arms.sums]
path = "{sums}"
floor = 0.25
"""


def request_at_25(run: RunDir, sources: dict[str, Path]) -> RunDir:
    """Trained and planned as far as step 25 lets, nothing pending; then a pivot is asked for: S will be 40."""
    proxy = desk(run)
    proxy.turn()
    DryTrainer(run, served(proxy)).train(25)
    proxy.turn()
    proxy.close()
    text = ANOTHER.format(**sources)
    prepare(run, policy.parse(text, "the test", run.root), ByteTokenizer(), held_out=0.1, context=32)
    run.policy_next.write_text(text)
    return run


@pytest.fixture(scope="module")
def pivoted(fresh: RunDir, sources: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    root = shutil.copytree(fresh.root, tmp_path_factory.mktemp("pivoted") / "run")
    run = quiet(request_at_25(RunDir(Path(root)), sources), LAST)
    assert json.loads(run.state.read_bytes())["policy"].startswith("40-") and not run.policy_pending.exists()
    return run


@pytest.mark.parametrize("seed", range(25))
def test_a_pivot_under_any_schedule(
    seed: int, copy: Callable[[str], RunDir], pivoted: RunDir, sources: dict[str, Path]
) -> None:
    """As any schedule, from the request on; the archive too must come out equal, whenever it was filled."""
    run = request_at_25(copy("run"), sources)
    any_schedule(run, np.random.default_rng(2000 + seed), LAST)
    assert sidecar_diff(run, pivoted) == [] and not run.policy_pending.exists()
    assert run.policy_toml.read_bytes() == pivoted.policy_toml.read_bytes()
    assert archived(run) == archived(pivoted)


def removals(run: RunDir, rng: np.random.Generator, since: int) -> Callable[[int], None]:
    """Removes some of the proxy's own files, once past step `since`."""

    def remove(step: int) -> None:
        if step > since:
            for path in (run.plan, run.loss, run.state):
                if rng.integers(2):
                    path.unlink(missing_ok=True)

    return remove


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_removed_is_made_again(
    seed: int, copy: Callable[[str], RunDir], pivoted: RunDir, sources: dict[str, Path]
) -> None:
    """As any schedule, over a pivot. Up to step 30 one plan more, written before the request, says that S is not 30."""
    run, rng = request_at_25(copy("run"), sources), np.random.default_rng(4000 + seed)
    any_schedule(run, rng, LAST, also=removals(run, rng, 30))
    assert sidecar_diff(run, pivoted) == [] and not run.policy_pending.exists()
    assert run.policy_toml.read_bytes() == pivoted.policy_toml.read_bytes()
    assert archived(run) == archived(pivoted)


@pytest.mark.parametrize("seed", range(25))
def test_what_fell_back_is_made_again_too(seed: int, copy: Callable[[str], RunDir]) -> None:
    """Unless a round that was trained with its plan is trained again without: that is another one, and on record."""
    run, rng = copy("run"), np.random.default_rng(5000 + seed)
    impatient(run, rng, removals(run, rng, 0))
    if again := [entry for entry in read(run.loss) if entry["attempt"] > 1]:
        assert again[0]["flags"] == ["fallback"], "trained again, otherwise, and not for want of a plan"
        return
    twin = copy("twin")
    replay(run, twin)
    assert sidecar_diff(quiet(twin, LAST), run, fell_back=True) == []


FAR = 400


@pytest.fixture(scope="module")
def far(make: Make) -> RunDir:
    """Ten rounds between two checkpoints: a trainer that is killed goes far back."""
    return make("far", {"optimizer": {"max_steps": FAR}, "checkpoint": {"every": FAR // 2}, "probe": {"every": FAR}})


def spoil(plan: Path, rng: np.random.Generator) -> None:
    """Remove it, or leave a beginning of it, or put zeros over some of it."""
    data = plan.read_bytes() if plan.exists() else b""
    at = int(rng.integers(len(data) + 1))
    match rng.integers(4):
        case 0:
            plan.unlink(missing_ok=True)
        case 1:
            plan.write_bytes(data[:at])
        case 2:
            plan.write_bytes(data[: min(at, 100)])
        case _:
            plan.write_bytes(data[:at] + bytes(40) + data[at + 40 :])


@pytest.mark.parametrize("seed", range(25))
def test_a_plan_that_is_spoilt_is_mended_however_far_the_trainer_goes_back(
    seed: int, far: RunDir, tmp_path: Path
) -> None:
    """Killed, or stopped with a checkpoint between two of the cadence; the proxy is never given up waiting for."""
    run, whole = (RunDir(Path(shutil.copytree(far.root, tmp_path / name))) for name in ("run", "whole"))
    rng, waits = np.random.default_rng(6000 + seed), 0
    proxy = Mortal(run, rng, 200)

    def turn() -> bool:
        nonlocal waits
        waits = waits + 1
        return proxy.turn() and waits < 1000

    trainer = DryTrainer(run, turn)
    while trainer.step < FAR:
        match rng.integers(40):
            case 0:
                trainer = DryTrainer(run, turn)
            case 1:
                trainer.stop()
                trainer = DryTrainer(run, turn)
            case 2 | 3:
                proxy = Mortal(run, rng, 200)
                spoil(run.plan, rng)
            case 4 | 5 | 6:
                proxy.turn()
            case _:
                waits = 0
                trainer.train(min(FAR, trainer.step + int(rng.integers(1, 12))))
    look(run)
    quiet(whole, FAR)
    assert not any(event["event"] == "fallback" for event in read_events(run.events))
    assert entries(run) == entries(whole) and plan_in_force(run) == plan_in_force(whole)


def archived(run: RunDir) -> dict[str, Any]:
    folder = run.archived(40)
    content: dict[str, Any] = {path.name: path.read_bytes() for path in folder.iterdir()}
    content[".state.json"] = json.loads(content[".state.json"])
    samples = json.loads(content[".samples.json"])
    content[".samples.json"] = [(audit["step"], audit["samples"]) for audit in samples["audits"]]
    return content


def test_a_pivot_whose_first_round_fell_back_happens_at_the_next_boundary(
    copy: Callable[[str], RunDir], sources: dict[str, Path]
) -> None:
    run = request_at_25(copy("run"), sources)
    proxy = desk(run)
    proxy.turn()
    trainer = DryTrainer(run, served(proxy))
    trainer.train(40)
    proxy.turn()
    assert [policy_start(line.plan.policy) for line in planfile.first_lines(run.plan)] == [0, 40]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("andrea_rundir.planfile.PlanReader.poll", lambda reader: [])
        trainer = DryTrainer(run, lambda: False)
        trainer.train(45)
    trainer = DryTrainer(run, served(proxy))
    trainer.train(LAST)
    proxy.turn()
    proxy.close()
    starts = [int(entry["policy"].partition("-")[0]) for entry in latest(read(run.loss)).values()]
    assert starts == [0] * 50 + [50] * (LAST - 50)
    assert run.archived(50).is_dir() and not run.archived(40).exists() and not run.policy_pending.exists()


def test_an_edit_while_a_pivot_is_under_way_is_kept(copy: Callable[[str], RunDir], sources: dict[str, Path]) -> None:
    run = request_at_25(copy("run"), sources)
    desk(run).turn()
    edit = run.policy_toml.read_text() + "# an edit that comes too late\n"
    run.policy_toml.write_text(edit)
    quiet(run, LAST)
    assert run.policy_toml.read_text() == ANOTHER.format(**sources)
    assert (run.root / "policy.toml.edited").read_text() == edit


def test_the_data_runs_out(make: Make, tmp_path: Path) -> None:
    """All arms have an epoch limit: the last plan ends where the last whole batch does, and so does the trainer."""
    limited = {"optimizer": {"max_steps": 10_000}, "checkpoint": {"every": CADENCE}}
    run = make("short", limited, rules="max_epochs = 0.3\n")
    text = run.policy_toml.read_text().replace("[arms.sums]", "max_epochs = 0.3\n[arms.sums]")
    run.policy_toml.write_text(text)
    quiet(run, 10_000)
    pulls = sum(count for entry in read(run.loss) for count, *_ in entry["arms"].values())
    room = sum(int(0.3 * windows) for windows in desk(run).fold.regime.windows.values())
    assert 0 <= room - pulls < 4 and pulls % 4 == 0
