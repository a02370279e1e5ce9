"""System calls of the real processes refused by the kernel, as strace injects it: see `table`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea_rundir.entries import read
from andrea_rundir.names import RunDir
from faults.pair import PATIENT, STARTERS, finish, is_twin
from faults.table import ENDS, PROVED, READS, STARTS, Row

SOME = slice(None) if os.environ.get("FAULTS") == "all" else slice(None, None, 3)
"""One row in three, without `make faults`."""

Make = Callable[..., RunDir]


def refused(run: RunDir, row: Row) -> list[str]:
    """The command under which the row's calls fail."""
    inject = f"inject={row.call}:error={row.error}:when={row.calls}"
    trace = ["-e", f"trace={row.call}", "-e", inject, "-e", "signal=none", "-o", f"{run.root}.strace"]
    return ["strace", "-D", "-f", "-qq", "-P", str(run.root / row.path), *trace]


@pytest.mark.parametrize("row", [*STARTS[SOME], *ENDS[SOME]], ids=lambda row: row.name)
def test_an_end_is_told_in_words_and_by_its_code(row: Row, make: Make) -> None:
    run = make("ends", PATIENT)
    if row.spoilt:
        run.policy_toml.write_text("[arms.a]\npath = '/nowhere.txt'\n")
    with STARTERS[row.who](run, under=refused(run, row)) as process:
        assert process.wait() == row.code, process.said()
    assert row.says in process.said() and "Traceback" not in process.said()
    assert (run.root / row.path).exists() == row.spoilt, "nothing was injected"
    entries = list(read(run.loss)) if run.loss.exists() else []
    assert not run.checkpoints() and not entries, "who was refused has trained or recorded"


@pytest.mark.parametrize("row", READS[SOME], ids=lambda row: row.name)
def test_what_is_refused_for_a_moment_leaves_no_trace(row: Row, make: Make, whole: RunDir) -> None:
    run = make("goes-on", PATIENT)
    trainer = finish(run, refused(run, row))
    assert "(INJECTED)" in Path(f"{run.root}.strace").read_text(), "nothing was injected"
    assert "Traceback" not in trainer.said()
    is_twin(run, whole)


def test_what_is_proved_elsewhere_is_there() -> None:
    tests = Path(__file__).parents[1]
    for fault, where in PROVED.items():
        assert all((tests / path).exists() for path in where.split(", ")), fault
