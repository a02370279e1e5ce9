"""Several pivots of one run: there and back again, and sources that come, go and change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from andrea_proxy import learners
from andrea_proxy.learners import StepRecord
from andrea_proxy.rebuild import rebuild
from andrea_rundir import config, planfile, policy
from andrea_rundir.entries import latest, read
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan
from harness import make_run
from harness.commands import Andrea
from harness.dry import desk, look, quiet

CHANGES = {"optimizer": {"max_steps": 2000}, "checkpoint": {"every": 10}}

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

Make = Callable[..., RunDir]


def go_over(andrea: Andrea, run: RunDir, text: str, last: int) -> dict[str, Any]:
    """Pivot to a policy, train on to step `last`; what the command said would change, by arm."""
    file = run.root.with_name("wish.toml")
    file.write_text(text)
    assert andrea("prepare", run.root, "--policy", file).code == 0
    done = andrea("pivot", run.root, "--policy", file, "--no-wait", "--json")
    assert done.code == 0, done.err
    quiet(run, last)
    found = rebuild(run, config.load(run.run_toml))
    assert not found.differences and not found.problem and not run.policy_pending.exists()
    return {row["arm"]: row for row in done.json["arms"]}


def first_plans(run: RunDir) -> list[RoundPlan]:
    return [line.plan for line in planfile.first_lines(run.plan)]


def state(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def arms(sources: dict[str, Path]) -> str:
    return "".join(f'[arms.{name}]\npath = "{path}"\n' for name, path in sources.items())


def pulled(run: RunDir, arm: str, end: int) -> int:
    return sum(entry["arms"].get(arm, [0])[0] for step, entry in latest(read(run.loss)).items() if step <= end)


def windows(run: RunDir) -> dict[str, int]:
    proxy = desk(run)
    proxy.close()
    return dict(proxy.fold.regime.windows)


def test_there_and_back_nothing_learnt_comes_back(
    andrea: Andrea, make: Make, sources: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    run = make("back", CHANGES)
    run.policy_toml.write_text(policy.dump(policy.load(run.policy_toml)))  # as the command spells one
    quiet(run, 95)
    go_over(andrea, run, f'learner = "ucb1"\n[arms.prose]\npath = "{sources["prose"]}"\n', 195)
    between = state(run.state)
    assert [arm["arm"] for arm in between["retired"]] == ["sums"] and between["arms"].keys() == {"prose"}
    rows = go_over(andrea, run, arms(sources), 295)
    assert (rows["sums"]["source"], rows["sums"]["share"], rows["sums"]["new_share"]) == ("back", None, 0.5)

    plans = first_plans(run)
    starts, ids = zip(*(plan.policy.split("-") for plan in plans), strict=True)
    assert starts == ("0", "110", "210") and ids[0] == ids[2] != ids[1]
    assert plans[1].cursors == {"prose": pulled(run, "prose", 110)}
    assert plans[2].cursors == {arm: pulled(run, arm, 210) for arm in ("prose", "sums")}
    assert pulled(run, "sums", 210) == pulled(run, "sums", 110) > 0
    assert plans[2].shares == plans[0].shares and set(plans[2].credits.values()) == {0}

    now, first = state(run.state), state(run.archived(110) / ".state.json")
    fresh, cursors, size = learners.make("slope", 1337), dict(plans[2].cursors), windows(run)
    for step, entry in latest(read(run.loss)).items():
        if step > 210:
            epochs = {arm: cursors[arm] / size[arm] for arm in entry["arms"]}
            fresh.observe(StepRecord(step, 32, entry["arms"], epochs))
            cursors |= {arm: cursors[arm] + pulls for arm, (pulls, *_) in entry["arms"].items()}
    assert now["fold"]["learner"] == fresh.to_state() != first["fold"]["learner"]
    assert {arm: about["cursor"] for arm, about in now["arms"].items()} == cursors
    assert now["arms"]["sums"]["epochs"] == cursors["sums"] / size["sums"] and now["retired"] == []

    shutil.copy(run.archived(110) / ".state.json", run.state)  # somebody brings the old one back
    look(run)
    assert "folded anew" in caplog.text and state(run.state)["fold"] == now["fold"]


def test_a_source_is_added_one_dropped_one_replaced(andrea: Andrea, tmp_path: Path) -> None:
    texts = {name: tmp_path / f"{name}.txt" for name in ("added", "dropped", "replaced", "stays")}
    for name, path in texts.items():
        path.write_text(f"what {name} says is said again, {name} by {name}\n" * 300)
    run = make_run(tmp_path / "run", changes=CHANGES, arms={name: texts[name] for name in sorted(texts)[1:]})
    quiet(run, 95)
    old = first_plans(run)[0].arms
    texts["replaced"].write_text("nobody has read this before, and that is why it is here\n" * 300)
    rows = go_over(andrea, run, arms({name: texts[name] for name in ("added", "replaced", "stays")}), 195)
    assert {name: row["source"] for name, row in rows.items()} == {
        "added": "new",
        "dropped": "dropped",
        "replaced": "replaced",
        "stays": "same",
    }
    new = first_plans(run)[1]
    assert new.arms["stays"] == old["stays"] and new.arms["replaced"] != old["replaced"]
    assert new.cursors == {"added": 0, "replaced": 0, "stays": pulled(run, "stays", 110)}
    retired = {(arm["arm"], arm["fingerprint"], arm["after"]) for arm in state(run.state)["retired"]}
    assert retired == {(name, old[name], 110) for name in ("dropped", "replaced")}
    after = [set(entry["arms"]) for step, entry in latest(read(run.loss)).items() if step > 110]
    assert set.union(*after) == {"added", "replaced", "stays"}
