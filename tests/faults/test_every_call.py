"""The k-th call of a life refused, for every k: see `table.EVERY`. Every life ends as the quiet one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from faults.lives import LIVES, SETTINGS, Injection, copied, injected, recorded, unlike
from faults.table import EVERY, Every
from harness import Trainer

Make = Callable[..., RunDir]

ALL = os.environ.get("FAULTS") == "all"
"""Otherwise the samples of each row."""
MOST = 400
"""Calls of a life, at the very most."""


@pytest.fixture(scope="module")
def template(make: Make) -> RunDir:
    return make("template", SETTINGS)


@pytest.fixture(scope="module")
def ends(template: RunDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunDir]]:
    """For either one a run that nothing happened to; then the plan of the quiet run lies in the template."""
    runs = {who: copied(template, tmp_path_factory.mktemp(who) / "whole") for who in ("proxy", "trainer")}
    for who, run in runs.items():
        if who == "trainer":
            shutil.copy(runs["proxy"].plan, run.plan)
        process = LIVES[who](run)
        assert process.process.returncode == 0, process.said()
    yield runs


def wrong(run: RunDir, whole: RunDir, row: Every, process: Trainer) -> list[str]:
    """What is not as the row says it. A proxy has one more start in any case: what is a cache only may be missing."""
    code, said = process.process.returncode, process.said()
    found = ["a traceback"] if "Traceback" in said else []
    if code == 1:
        found += [] if "where:" in said else ["refused without a word"]
        found += ["it had begun, and did not go on"] if begun(run, row.who) else []
    if code == 1 or row.who == "proxy":
        code = code if code > 1 else LIVES[row.who](run).process.returncode
    if code != 0 or found:
        return [*found, f"ended with {code}", said]
    return unlike(run, whole, row.who)


def begun(run: RunDir, who: str) -> bool:
    """Whether it has done anything."""
    return recorded(run) > 0 if who == "proxy" else any(event["event"] == "step" for event in read(run.events))


@pytest.mark.parametrize("row", EVERY if ALL else [row for row in EVERY if row.sample], ids=lambda row: row.name)
def test_every_call_of_a_life_may_fail(row: Every, template: RunDir, ends: dict[str, RunDir], tmp_path: Path) -> None:
    whens = iter(row.when or map(str, count(1)) if ALL else row.sample)
    lives, bad = 0, {}
    for when in whens:
        run = copied(template, tmp_path / f"run-{when}")
        if row.who == "trainer":
            shutil.copy(ends["proxy"].plan, run.plan)
        process = LIVES[row.who](run, Injection(row.calls, row.error, when))
        if injected(run) == 0:
            break
        lives += 1
        assert lives < MOST, "no end of calls"
        if found := wrong(run, ends[row.who], row, process):
            bad[when] = found
        shutil.rmtree(run.root)
    print(f"{row.name}: {lives} lives")
    assert lives, "nothing was injected"
    assert not bad, "\n".join(f"call {when}: {line}" for when, found in bad.items() for line in found)
