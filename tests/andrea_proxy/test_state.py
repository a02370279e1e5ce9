"""`.state.json` is a cache: used only where it is of this very history, and no arm of another life survives in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from andrea_rundir import sidecars
from andrea_rundir.names import RunDir
from harness.dry import DryTrainer, desk, quiet

STEPS = 60

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

Make = Callable[..., RunDir]
State = dict[str, Any]


@pytest.fixture(scope="module")
def trained(make: Make) -> RunDir:
    return quiet(make("trained", {"optimizer": {"max_steps": 200}}), STEPS)


@pytest.fixture
def run(trained: RunDir, tmp_path: Path) -> RunDir:
    return RunDir(Path(shutil.copytree(trained.root, tmp_path / "run")))


def load(run: RunDir) -> State:
    found: State = json.loads(run.state.read_bytes())
    return found


def zombie(state: State) -> None:
    """The story: an arm of an earlier run, whose source is gone, with a weight that would have drawn pulls for ever."""
    state["run"] = "f" * 32
    state["arms"]["repo-docstrings"] = {**state["arms"]["sums"], "fingerprint": "c" * 16, "weight": 1.546}


def renamed(state: State) -> None:
    state["arms"]["figures"] = state["arms"].pop("sums")


def changed_file(state: State) -> None:
    state["arms"]["sums"]["fingerprint"] = "c" * 16


def another_run(state: State) -> None:
    state["run"] = "f" * 32


def reordered(state: State) -> None:
    """A list, as the original had it, in another order."""
    state["arms"] = [{"name": name, **figures} for name, figures in reversed(state["arms"].items())]


def other_history(state: State) -> None:
    state["history"]["digest"] = "0" * 32


def other_learner(state: State) -> None:
    state["fold"]["learner"]["learner"] = "ucb1"


def no_fold(state: State) -> None:
    del state["fold"]["cursors"]


SPOILT: dict[str, tuple[Callable[[State], None], list[str]]] = {
    "zombie": (zombie, ["repo-docstrings"]),
    "renamed": (renamed, ["figures"]),
    "changed-file": (changed_file, ["sums"]),
    "another-run": (another_run, []),
    "reordered": (reordered, []),
    "other-history": (other_history, []),
    "other-learner": (other_learner, []),
    "no-fold": (no_fold, []),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_not_of_this_history_is_folded_anew(name: str, run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    good = load(run)
    spoil, retired = SPOILT[name]
    state = load(run)
    spoil(state)
    run.state.write_text(json.dumps(state))
    with caplog.at_level("INFO", "dry"):
        proxy = desk(run)
        proxy.turn()
        proxy.close()
    assert [record.message for record in caplog.records if "folded anew" in record.message].__len__() == 1
    assert all(any(arm in record.message for record in caplog.records) for arm in retired)
    now = load(run)
    assert [arm["arm"] for arm in now["retired"]] == retired
    assert {key: now[key] for key in ("run", "arms", "fold", "history", "step")} == {
        key: good[key] for key in ("run", "arms", "fold", "history", "step")
    }


def test_a_zombie_never_gets_a_pull_and_stays_listed(run: RunDir) -> None:
    state = load(run)
    zombie(state)
    run.state.write_text(json.dumps(state))
    for last in (80, 100):  # the second proxy finds the first one's file
        proxy = desk(run)

        def wait(proxy: Any = proxy) -> bool:
            proxy.turn()
            return True

        DryTrainer(run, wait).train(last)
        proxy.turn()
        proxy.close()
        now = load(run)
        assert now["retired"] == [{"arm": "repo-docstrings", "fingerprint": "c" * 16, "weight": 1.546}]
        assert now["arms"].keys() == {"prose", "sums"} and b"repo-docstrings" not in run.plan.read_bytes()
        assert sum(arm["pulls"] for arm in now["arms"].values()) == 4 * last
        assert sum(arm["share"] for arm in now["arms"].values()) == pytest.approx(1, abs=1e-9)


FILES = {
    "corrupt": ('{"schema": 1, "run"', ".state.json.bad"),
    "a-list": ("[]", ".state.json.bad"),
    "newer": ('{"schema": 99, "run": "x"}', ".state.json.newer"),
    "older": ('{"run": "x"}', ".state.json.bad"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_used_is_kept_aside(name: str, run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    good = load(run)
    text, aside = FILES[name]
    run.state.write_text(text)
    with caplog.at_level("INFO", "dry"):
        proxy = desk(run)
        proxy.turn()
        proxy.close()
    assert (run.root / aside).read_text() == text and aside in caplog.text
    assert load(run) == good


def test_no_file_at_all_is_nothing_to_speak_of(run: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    good = load(run)
    run.state.unlink()
    with caplog.at_level("INFO", "dry"):
        proxy = desk(run)
        proxy.turn()
        proxy.close()
    assert load(run) == good and "folded" not in caplog.text


def test_nothing_is_overwritten_when_set_aside(tmp_path: Path) -> None:
    path = tmp_path / ".state.json"
    for expected in (".state.json.bad", ".state.json.bad2", ".state.json.bad3"):
        path.write_text("junk")
        with pytest.raises(sidecars.Unusable) as why:
            sidecars.load(path)
        assert sidecars.set_aside(path, why.value).name == expected


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / ".state.json"
    assert sidecars.load(path) is None
    sidecars.save(path, {"a": [1, 0.1 + 0.2]})
    assert sidecars.load(path) == {"a": [1, 0.1 + 0.2]} and json.loads(path.read_bytes())["schema"] == 1
    with pytest.raises(ValueError):
        sidecars.save(path, {"a": float("nan")})
    assert sidecars.load(path) == {"a": [1, 0.1 + 0.2]}
