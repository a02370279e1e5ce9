"""`andrea compare` on made-up branches, and on none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from andrea_cli import lineage
from andrea_rundir.eventlog import EventLog
from andrea_rundir.names import RunDir
from andrea_rundir.policy import policy_id
from harness.commands import CONFIG, Andrea

ONE = '[arms.a]\npath = "/a"\nprior = 3.0\n[arms.b]\npath = "/b"\n'
OTHER = '[arms.x]\npath = "/a"\n[arms.c]\npath = "/c"\n'
ARMS = {ONE: {"a": "f" * 16, "b": "e" * 16}, OTHER: {"x": "f" * 16, "c": "d" * 16}}
FORK = 100

Make = Callable[..., RunDir]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A run with `last` steps; `bits` gives what its arms are probed to, `other` another policy from the fork on."""

    def made(
        name: str,
        last: int,
        bits: Callable[[int, str], float] = lambda step, arm: 2.0,
        *,
        other: bool = False,
        changes: tuple[str, str] = ("", ""),
    ) -> RunDir:
        run = RunDir(tmp_path / name)
        run.root.mkdir()
        text = CONFIG.replace("[run]\n", f'[run]\nname = "{name}"\nid = "{name.encode().hex():0>32}"\n')
        run.run_toml.write_text(text.replace(*changes))
        log = EventLog(run.events)
        for step in range(1, last + 1):
            own = OTHER if other and step > FORK else ONE
            pid = policy_id(own, FORK if own is OTHER else 0)
            if step in (1, FORK + 1):
                begun = {"id": pid, "text": own, "arms": ARMS[own]}
                log.append("start", step=step - 1, furthest=0, config={}, policy=begun)
            arms = {arm: [3 - i * 2, 2.0, 10] for i, arm in enumerate(ARMS[own])}
            figures = {"loss": 2.0, "arms": arms, "lr": 0.1, "grad_norm": 1.0, "tokens": 4, "seconds": 0.0}
            log.append("step", step=step, **figures, policy=pid, flags=[])
            if step % 20 == 0:
                probed = {arm: bits(step, arm) for arm in ARMS[own]}
                log.append("probe", step=step, arms=probed, mean=1.0, seconds=0.0)
        assert log.close()
        return run

    return made


def fork(run: RunDir, parent: RunDir, step: int = FORK, **more: object) -> RunDir:
    name = parent.root.name
    own = {"id": f"{name.encode().hex():0>32}", "name": name, "step": step, "digest": "d", "earlier": None}
    lineage.write(run, "fork", **{**own, **more})
    return run


def test_branches_are_aligned_and_judged(make: Make, andrea: Andrea) -> None:
    parent = make("p", 300)
    branch = fork(make("q", 280, lambda step, arm: 2.0 - 0.04 * (step > FORK) + 1e-4 * (step % 40)), parent)
    done = andrea("compare", parent.root, branch.root, "--json").json
    assert (done["parted"]["name"], done["parted"]["step"]) == ("p", FORK)
    assert [b["steps"] for b in done["branches"]] == [200, 180]
    assert [point["since"] for point in done["points"]] == list(range(20, 181, 20))
    assert done["points"][0]["held_out"] == [2.0, pytest.approx(1.96, abs=1e-9)]
    assert done["points"][0]["ema"] == [2.0, 2.0]
    assert done["verdict"]["high"] < 0 and done["verdict"]["probes"] == 9
    assert done["sentence"].startswith("B is better") and "one seed" in done["sentence"]
    back = andrea("compare", branch.root, parent.root).out
    assert "A is better: B has +0.03" in back and "parted   at step 100 of p" in back and "one seed" in back


def test_policies_are_judged_by_the_shards_and_priors_they_share(make: Make, andrea: Andrea) -> None:
    """Arm a, with three quarters of the weight, goes on as x; b is dropped, c is new: neither can be compared."""
    level = {"a": 2.0, "b": 9.0, "x": 1.5, "c": 7.0}
    parent = make("p", 240, lambda step, arm: level[arm])
    branch = fork(make("q", 240, lambda step, arm: level[arm], other=True), parent)
    done = andrea("compare", parent.root, branch.root, "--json").json
    assert done["points"][-1]["held_out"] == [2.0, 1.5]
    rows = {row["fingerprint"][0]: row for row in done["arms"]}
    assert rows["f"]["arm"] == ["a", "x"] and rows["f"]["share"] == [0.75, 0.75] and rows["f"]["held_out"] == [2.0, 1.5]
    assert rows["e"]["arm"] == ["b", None] and rows["e"]["share"] == [0.25, None]
    assert rows["d"]["arm"] == [None, "c"] and rows["d"]["held_out"] == [None, 7.0]
    assert [len(b["policies"]) for b in done["branches"]] == [1, 1]
    assert "a / x" in andrea("compare", parent.root, branch.root).out


def test_the_mean_is_weighted_by_the_priors(make: Make, andrea: Andrea) -> None:
    parent = make("p", 120, lambda step, arm: {"a": 1.0, "b": 2.0}[arm])
    branch = fork(make("q", 120), parent)
    assert andrea("compare", parent.root, branch.root, "--json").json["points"][0]["held_out"] == [1.25, 2.0]


def test_too_early_and_no_difference(make: Make, andrea: Andrea) -> None:
    parent, equal, young = make("p", 300), make("q", 300), make("r", 130)
    for branch in (equal, young):
        fork(branch, parent)
    assert "no difference at all at 10 probes (one seed)" in andrea("compare", parent.root, equal.root).out
    assert "no difference at all at 1 probe " in andrea("compare", equal.root, young.root).out
    unborn = fork(make("s", 100), parent)
    done = andrea("compare", parent.root, unborn.root, "--json").json
    assert done["points"] == [] and done["verdict"] is None and "too early to say: 0 probes" in done["sentence"]
    assert [row["share"] for row in done["arms"]] == [[None, None]] * len(done["arms"])
    assert andrea("compare", parent.root, unborn.root).code == 0


def test_what_differs_is_said(make: Make, andrea: Andrea) -> None:
    parent = make("p", 120)
    branch = fork(make("q", 120, changes=("warmup_steps = 2", "warmup_steps = 3")), parent)
    assert andrea("compare", parent.root, branch.root, "--json").json["differs"] == {"optimizer.warmup_steps": [2, 3]}
    assert "differs  optimizer.warmup_steps: 2 in A, 3 in B" in andrea("compare", parent.root, branch.root).out


def test_strangers_and_one_run_are_refused(make: Make, andrea: Andrea) -> None:
    one, other = make("p", 40), make("q", 40)
    done = andrea("compare", one.root, other.root)
    assert done.code == 1 and "nothing in common" in done.err
    done = andrea("compare", one.root, one.root)
    assert done.code == 1 and "one run, twice" in done.err
    assert andrea("compare", one.root, one.root / "nowhere").code == 1


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_drawing(kind: str, make: Make, andrea: Andrea, tmp_path: Path) -> None:
    parent = make("p", 240)
    branch = fork(make("q", 180, other=True), parent)
    file = tmp_path / f"both.{kind}"
    done = andrea("compare", parent.root, branch.root, "--plot", file)
    assert done.code == 0 and f"drawn in {file}" in done.out
    assert file.read_bytes().startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    before: dict[str, Any] = json.loads(andrea("compare", parent.root, branch.root, "--json").out)
    assert "plot" not in before
    done = andrea("compare", parent.root, branch.root, "--plot", tmp_path / "both.gif")
    assert done.code == 2 and ".png or .svg" in done.err
