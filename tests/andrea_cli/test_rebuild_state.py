"""`andrea rebuild-state` on a run that was trained with a proxy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from harness import make_run
from harness.commands import Andrea
from harness.dry import quiet


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return quiet(make_run(tmp_path_factory.mktemp("rebuild") / "run", changes={"optimizer": {"max_steps": 200}}), 45)


@pytest.fixture
def run(trained: RunDir, tmp_path: Path) -> RunDir:
    return RunDir(Path(shutil.copytree(trained.root, tmp_path / "run")))


def test_it_proves_the_file_equal(run: RunDir, andrea: Andrea) -> None:
    before = run.state.read_bytes()
    done = andrea("rebuild-state", run.root, "--json")
    assert done.code == 0 and done.json["equal"] and done.json["entries"] == done.json["step"] == 45
    assert run.state.read_bytes() == before
    assert "equal" in andrea("rebuild-state", run.root).out


def test_what_differs_is_named_and_replaced(run: RunDir, andrea: Andrea) -> None:
    good = json.loads(run.state.read_bytes())
    bad = json.loads(run.state.read_bytes())
    bad["arms"]["prose"]["reward"] += 1e-15
    bad["fold"]["cursors"]["sums"] += 1
    run.state.write_text(json.dumps(bad))
    done = andrea("rebuild-state", run.root, "--json")
    assert done.code == 1 and done.json["differences"] == ["arms.prose.reward", "fold.cursors.sums"]
    assert json.loads((run.root / ".state.json.bad").read_bytes()) == bad
    now = json.loads(run.state.read_bytes())
    assert {**now, "events": 0} == {**good, "events": 0}
    assert andrea("rebuild-state", run.root).code == 0


def test_what_replaces_it_is_of_all_the_history(run: RunDir, andrea: Andrea) -> None:
    """A proxy that was killed had recorded more than its state covers."""
    good, bad = json.loads(run.state.read_bytes()), json.loads(run.state.read_bytes())
    entries = run.loss.read_bytes().split(b",\n")[:40]
    bad["history"] = {"entries": 40, "bytes": len(b",\n".join(entries)), "digest": "0" * 32}
    run.state.write_text(json.dumps(bad))
    done = andrea("rebuild-state", run.root, "--json")
    assert done.code == 1 and done.json["replaced"] and "history.digest" in done.json["differences"]
    assert {**json.loads(run.state.read_bytes()), "events": 0} == {**good, "events": 0}


def test_without_a_history_it_differs(run: RunDir, andrea: Andrea) -> None:
    run.loss.unlink()
    done = andrea("rebuild-state", run.root, "--dry-run", "--json")
    assert done.code == 1 and "history.digest" in done.json["differences"]
    assert andrea("verify", run.root).code == 1


def test_a_dry_run_only_compares(run: RunDir, andrea: Andrea) -> None:
    run.state.write_text("junk")
    done = andrea("rebuild-state", run.root, "--dry-run")
    assert done.code == 1 and "cannot be read" in done.out and "replaced" not in done.out
    assert run.state.read_text() == "junk"


def test_a_changed_history_is_seen(run: RunDir, andrea: Andrea) -> None:
    data = run.loss.read_bytes()
    run.loss.write_bytes(data.replace(b'"step":45,"attempt":1,"loss":1', b'"step":45,"attempt":1,"loss":2', 1))
    assert run.loss.read_bytes() != data
    done = andrea("rebuild-state", run.root, "--json")
    assert done.code == 1 and done.json["differences"] == ["history.digest"]


@pytest.mark.parametrize("text", [None, "junk", '{"schema": 7}'])
def test_a_file_that_is_missing_or_unusable_is_made(text: str | None, run: RunDir, andrea: Andrea) -> None:
    good = json.loads(run.state.read_bytes())
    if text is None:
        run.state.unlink()
    else:
        run.state.write_text(text)
    done = andrea("rebuild-state", run.root, "--json")
    assert done.code == 0 and done.json["replaced"] and done.json["problem"]
    now = json.loads(run.state.read_bytes())
    assert {**now, "events": 0} == {**good, "events": 0}


def test_beside_a_proxy_at_work_it_only_compares(run: RunDir, andrea: Andrea) -> None:
    run.state.write_text("junk")
    with Lock.acquire(run.proxy_lock, {"pid": 1}):
        done = andrea("rebuild-state", run.root, "--json")
    assert done.code == 1 and not done.json["replaced"] and run.state.read_text() == "junk"


def test_the_status_shows_the_arms(run: RunDir, andrea: Andrea) -> None:
    shown = andrea("status", run.root)
    assert "share" in shown.out and "epochs" in shown.out and "slope" in shown.out
    figures = andrea("status", run.root, "--json").json["curriculum"]
    assert figures["step"] == 45 and sum(arm["pulls"] for arm in figures["arms"].values()) == 4 * 45
    run.state.write_text("junk")
    assert andrea("status", run.root, "--json").json["curriculum"] is None
