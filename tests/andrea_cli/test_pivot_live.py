"""`andrea pivot` with the processes it speaks to: the whole story by command and by hand, and what comes in between."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from andrea_corpus.prepare import prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir import planfile, policy
from andrea_rundir.entries import latest, read
from andrea_rundir.events import read as read_events
from andrea_rundir.names import RunDir
from andrea_rundir.plan import SHARE_UNIT
from andrea_rundir.publish import sweep
from harness import Trainer, sidecar_diff, start, start_proxy, twin_diff, until
from harness.commands import Andrea, Done, snapshot
from harness.processes import TESTS

LAST, CADENCE, BOUNDARY = 70, 10, 40
PATIENT = {
    "run": {"plan_wait": 600.0},
    "optimizer": {"max_steps": LAST},
    "checkpoint": {"every": CADENCE, "keep_last": 2},
    "probe": {"every": 40},
}
FREEZE_AT_25 = {"at": "andrea_train.loop:Loop._edge", "call": 25, "do": "STOP"}

Make = Callable[..., RunDir]


def call(run: RunDir, *options: object, hurt: list[dict[str, Any]] | None = None) -> subprocess.Popen[str]:
    """`andrea pivot` in a process of its own."""
    program = ["-m", "harness.failpoints", json.dumps(hurt), "andrea_cli.main"] if hurt else ["-m", "andrea_cli.main"]
    return subprocess.Popen(
        [sys.executable, *program, "pivot", str(run.root), *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        text=True,
    )


def ended(command: subprocess.Popen[str]) -> Done:
    """What a command left at its end."""
    out, err = command.communicate(timeout=150)
    assert "Traceback" not in err
    return Done(command.returncode, out, err)


def recorded(run: RunDir, step: int) -> Callable[[], bool]:
    return lambda: max((entry["step"] for entry in read(run.loss)), default=0) >= step


def at_25(run: RunDir, trainer: Trainer) -> None:
    """The trainer stands still at the edge of step 25; what can be planned then is: to step 40."""
    until("the trainer stands at step 25", trainer.frozen)
    until("all is recorded and planned", lambda: recorded(run, 25)() and run.plan.read_bytes().count(b"\n") == 4)


def finish(run: RunDir, trainer: Trainer, proxy: Trainer) -> None:
    assert trainer.wait() == 0, trainer.said()
    until("all is recorded", recorded(run, LAST))
    until("the pivot is finished", lambda: not run.policy_pending.exists())
    assert proxy.stop() == 0, proxy.said()


@pytest.fixture(scope="module")
def wish(sources: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tighter limits and another learner, spelt as a run's own policy is."""
    text = (
        f'learner = "ucb1"\n[arms.prose]\npath = "{sources["prose"]}"\ncap = 0.4\n'
        f'[arms.sums]\npath = "{sources["sums"]}"\nfloor = 0.5\n'
    )
    file = tmp_path_factory.mktemp("wish") / "polish.toml"
    file.write_text(policy.dump(policy.parse(text, "the test", file.parent)))
    return file


@pytest.fixture(scope="module")
def by_command(make: Make, wish: Path) -> tuple[RunDir, dict[str, Any], str, bytes]:
    """The run; what the command printed, on both streams; the history as it was when the command was given."""
    run = make("command", PATIENT)
    with start_proxy(run) as proxy, start(run, hurt=[FREEZE_AT_25]) as trainer:
        at_25(run, trainer)
        old = run.loss.read_bytes().rstrip(b"] \n")
        command = call(run, "--policy", wish, "--json")
        until("it is claimed", run.policy_pending.exists)
        trainer.signal(signal.SIGCONT)
        done = ended(command)
        assert done.code == 0, done.err
        finish(run, trainer, proxy)
    return run, done.json, done.err, old


def test_by_command_as_the_command_says_it(
    by_command: tuple[RunDir, dict[str, Any], str, bytes], andrea: Andrea
) -> None:
    run, said, err, _ = by_command
    assert andrea("verify", run.root).code == 0
    (new,) = {entry["policy"] for entry in read(run.loss) if entry["step"] > BOUNDARY}
    assert (said["state"], said["step"], said["policy"]) == ("in force", BOUNDARY, new)
    assert new.startswith(f"{BOUNDARY}-") and said["archive"] == str(run.archived(BOUNDARY))
    assert f"takes effect after step {BOUNDARY}" in err
    (decision,) = [
        e["step"] for e in read_events(run.events) if (e["event"], e.get("reason")) == ("checkpoint", "signal")
    ]
    assert 25 <= decision <= 27 and f"step_{decision:06d}.bin is saved" in err


def test_by_command_everything_that_a_pivot_promises(
    by_command: tuple[RunDir, dict[str, Any], str, bytes], wish: Path
) -> None:
    run, _, _, old = by_command
    entries = latest(read(run.loss))
    first = next(iter(entries.values()))["policy"]
    assert list(entries) == list(range(1, LAST + 1))
    assert all((entry["policy"] == first) == (step <= BOUNDARY) for step, entry in entries.items())
    now = run.loss.read_bytes()[: len(old)]
    assert hashlib.sha256(now).digest() == hashlib.sha256(old).digest() and old.count(b"\n") >= 25
    folder = run.archived(BOUNDARY)
    names = {path.name for path in folder.iterdir()}
    assert names == {".samples.json", ".state.json", "policy.toml", f"step_{BOUNDARY:06d}.bin"}
    ended, begun = (json.loads(path.read_bytes()) for path in (folder / ".state.json", run.state))
    assert (ended["policy"], ended["step"], ended["learner"]) == (first, BOUNDARY, "slope")
    assert (begun["policy"], begun["step"], begun["learner"]) == (entries[LAST]["policy"], LAST, "ucb1")
    assert run.policy_toml.read_text() == wish.read_text() != (folder / "policy.toml").read_text()
    audits = {path: json.loads(path.read_bytes())["audits"] for path in (folder / ".samples.json", run.samples)}
    steps = [[audit["step"] for audit in found if audit["step"] % CADENCE == 0] for found in audits.values()]
    assert steps == [[0, 10, 20, 30, 40], [50, 60, 70]]

    cursors = {event["step"]: event["cursors"] for event in read_events(run.events) if event["event"] == "step"}
    assert sum(arm["pulls"] for arm in begun["arms"].values()) == 4 * (LAST - BOUNDARY)
    assert {arm: about["cursor"] - about["pulls"] for arm, about in begun["arms"].items()} == cursors[BOUNDARY]
    lines = [line.plan for line in planfile.read(run.plan) if line.plan.first > BOUNDARY]
    assert lines[0].first == BOUNDARY + 1 and lines[0].cursors == cursors[BOUNDARY]
    assert set(lines[0].credits.values()) == {0}
    for plan in lines:
        prose, sums = (plan.shares[arm] / SHARE_UNIT for arm in ("prose", "sums"))
        assert prose <= 0.4 + 1e-9 and sums >= 0.5 - 1e-9
    pulls = [entries[step]["arms"].get("prose", [0])[0] for step in range(BOUNDARY + 1, LAST + 1)]
    assert sum(pulls) <= 0.4 * 4 * len(pulls) + 1


def test_a_command_that_was_away_meanwhile_tells_what_came_to_pass(make: Make) -> None:
    """Asked and planned are told of every pivot, however seldom the command gets to look."""
    run = make("away", PATIENT)
    away = {"at": "andrea_cli.fate:Request.write", "call": 1, "do": "STOP", "after": True}
    with start_proxy(run) as proxy, start(run, hurt=[FREEZE_AT_25]) as trainer:
        at_25(run, trainer)
        command = call(run, "--cap", "prose=0.3", hurt=[away])
        try:
            until("it is claimed", run.policy_pending.exists)
            trainer.signal(signal.SIGCONT)
            finish(run, trainer, proxy)
            command.send_signal(signal.SIGCONT)
            done = ended(command)
        finally:
            command.kill()
    assert done.code == 0 and f"is in force since step {BOUNDARY + 1}" in done.out
    told = [line for line in done.err.splitlines() if "takes effect" in line]
    assert told == [f"andrea: {state}: takes effect after step {BOUNDARY}" for state in ("asked", "planned")]


def test_by_hand_it_comes_out_the_same(
    make: Make, wish: Path, by_command: tuple[RunDir, dict[str, Any], str, bytes]
) -> None:
    """As the lesson has it: SIGUSR1, stop the proxy, archive, edit the policy, start the proxy."""
    run = make("hand", PATIENT)
    with start(run, hurt=[FREEZE_AT_25]) as trainer:
        with start_proxy(run) as proxy:
            at_25(run, trainer)
            os.kill(int(run.train_pid.read_text()), signal.SIGUSR1)
            assert proxy.stop() == 0, proxy.said()
        trainer.signal(signal.SIGCONT)
        saved = lambda: [path for step, path in run.checkpoints().items() if step % CADENCE]  # noqa: E731
        until("the checkpoint is there", lambda: bool(saved()))
        mine = run.archive / saved()[0].stem
        mine.mkdir(parents=True)
        for path in (run.samples, run.state):
            path.rename(mine / path.name)
        for path in (run.policy_toml, saved()[0]):
            shutil.copy(path, mine)
        rules = policy.load(wish)
        prepare(run, rules, ByteTokenizer(), held_out=0.1, context=32)
        shutil.copy(wish, run.policy_toml)
        with start_proxy(run) as proxy:
            finish(run, trainer, proxy)
    twin = by_command[0]
    assert twin_diff(run, twin, LAST, cadence=CADENCE) == [] and sidecar_diff(run, twin) == []
    for name in (".state.json", "policy.toml", f"step_{BOUNDARY:06d}.bin"):
        assert (run.archived(BOUNDARY) / name).read_bytes() == (twin.archived(BOUNDARY) / name).read_bytes(), name


def test_weights_and_moments_run_through(make: Make) -> None:
    """A pivot that changes nothing of what is trained leaves every byte of the run without it."""
    runs = []
    for name, options in (("quiet", []), ("pivoted", ["--cap", "prose=0.75"])):
        run = make(name, {**PATIENT, "optimizer": {"max_steps": LAST}})
        run.policy_toml.write_text('learner = "fixed"\n' + run.policy_toml.read_text())
        with start_proxy(run) as proxy, start(run, hurt=[FREEZE_AT_25]) as trainer:
            at_25(run, trainer)
            if options:
                assert ended(call(run, *options, "--no-wait")).code == 0
                until("it is claimed", run.policy_pending.exists)
            trainer.signal(signal.SIGCONT)
            finish(run, trainer, proxy)
        runs.append(run)
    quiet, pivoted = (run.checkpoint(LAST).read_bytes() for run in runs)
    assert quiet == pivoted
    starts = [{int(entry["policy"].partition("-")[0]) for entry in read(run.loss)} for run in runs]
    assert starts == [{0}, {0, BOUNDARY}]


def at(where: str, number: int, *, after: bool = False) -> dict[str, Any]:
    return {"at": where, "call": number, "do": "KILL", "after": after}


WRITES = [
    at("os:write", 1),
    at("os:fsync", 1),
    at("os:link", 1),
    at("os:link", 1, after=True),
    at("os:unlink", 2),
    at("andrea_rundir.publish:fsync_dir", 1),
]
UNDOING = [at("os:unlink", 1), at("os:unlink", 1, after=True)]


def test_a_command_killed_at_every_write_has_asked_or_has_not(andrea: Andrea, make: Make) -> None:
    run = make("killed", PATIENT)
    before = snapshot(run.root)
    written = []
    for point in WRITES:
        done = ended(call(run, "--cap", "prose=0.3", "--no-wait", hurt=[point]))
        assert done.code == -9, f"{point} was not reached: {done}"
        there = run.policy_next.exists()
        assert not there or "cap = 0.3" in run.policy_next.read_text()
        assert andrea("pivot", run.root, "--cap", "prose=0.3", "--no-wait").code == (1 if there else 0)
        assert andrea("pivot", run.root, "--abort").code == 0
        sweep(run.root)
        assert snapshot(run.root) == before
        written.append(there)
    assert written == [False, False, False, True, True, True]
    for point in UNDOING:
        assert andrea("pivot", run.root, "--cap", "prose=0.3", "--no-wait").code == 0
        done = ended(call(run, "--abort", hurt=[point]))
        assert done.code == -9, f"{point} was not reached: {done}"
        assert andrea("pivot", run.root, "--abort").code == (1 if point["after"] else 0)
    assert snapshot(run.root) == before


def test_what_comes_while_it_waits(andrea: Andrea, make: Make, tmp_path: Path) -> None:
    """The proxy holds its lock and stands still, so that the request lies there for as long as we like."""
    run = make("waits", PATIENT)
    (tmp_path / "more.txt").write_text("more of it, and more of that\n" * 300)
    file = tmp_path / "wish.toml"
    file.write_text(run.policy_toml.read_text() + f'[arms.more]\npath = "{tmp_path}/more.txt"\n')
    made = andrea("prepare", run.root, "--policy", file, "--json").json["arms"]["more"]["fingerprint"]
    with start_proxy(run) as proxy:
        until("two rounds are planned", lambda: run.plan.exists() and run.plan.read_bytes().count(b"\n") == 2)
        proxy.signal(signal.SIGSTOP)
        command = call(run, "--policy", file)
        until("it is asked for", run.policy_next.exists)
        command.send_signal(signal.SIGINT)
        done = ended(command)
        assert done.code == 130 and "the request stands: it takes effect after step 20" in done.err, done
        assert f"to undo it: andrea pivot {run.root} --abort" in done.err
        assert andrea("pivot", run.root, "--abort").code == 0

        command = call(run, "--policy", file)
        until("it is asked for", run.policy_next.exists)
        (run.data / f"{made}.train.bin").unlink()
        proxy.signal(signal.SIGCONT)
        done = ended(command)
        assert done.code == 1 and "andrea-proxy refused the pivot: nothing was changed" in done.err, done
        assert made in done.err and "is missing or damaged" in done.err
        assert andrea("prepare", run.root, "--policy", file).code == 0
        done = andrea("pivot", run.root, "--policy", file)
        assert done.code == 0 and "claimed and can no longer be undone: it takes effect after step 20" in done.out
        assert "andrea-train was never started here" in done.out and "andrea-proxy" not in done.out.splitlines()[-1]
        assert proxy.stop() == 0, proxy.said()
