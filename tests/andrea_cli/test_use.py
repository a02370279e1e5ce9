from __future__ import annotations

from pathlib import Path

import pytest

from andrea_cli import use
from andrea_cli.list import about
from andrea_rundir.names import RunDir
from harness.commands import Andrea


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory with two runs, and a configuration that chooses none."""
    folder = tmp_path / "state"
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "run.toml").write_text("")
    monkeypatch.setenv("ANDREA_STATE", str(folder))
    conf = tmp_path / "etc" / "andrea.conf"
    monkeypatch.setattr("andrea_cli.use.CONF", conf)
    monkeypatch.setattr("andrea_cli.list.CONF", conf)
    return folder


def test_choosing(andrea: Andrea, state: Path) -> None:
    assert "chose one\n" in andrea("use", "one").out
    assert use.CONF.read_text() == "ANDREA_RUN=one\n"
    use.CONF.write_text("# mine\nANDREA_RUN=one\nANDREA_TRAIN_OPTIONS=--until-step 5\n")
    assert andrea("use", state / "two", "--json").json["before"] == "one"
    assert use.CONF.read_text() == "# mine\nANDREA_RUN=two\nANDREA_TRAIN_OPTIONS=--until-step 5\n"
    assert use.CONF.stat().st_mode & 0o777 == 0o644


def test_a_dry_run(andrea: Andrea, state: Path) -> None:
    assert "would choose one" in andrea("use", "one", "--dry-run").out
    assert not use.CONF.exists()


def test_refusals(andrea: Andrea, state: Path, tmp_path: Path) -> None:
    """No run, a run that the services could not write to, a name that a unit could not carry."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "run.toml").write_text("")
    (state / "link").symlink_to(tmp_path / "far")
    (state / "a b").mkdir()
    (state / "a b" / "run.toml").write_text("")
    for name in ("none", "link", "a b"):
        done = andrea("use", name)
        assert (done.code, done.out) == (1, ""), name
    assert not use.CONF.exists()


def test_what_starts_a_run(andrea: Andrea, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit, chosen first where it is not yet; the program where there is no unit, or none that may write there."""
    monkeypatch.setattr(use, "SERVED", state)
    monkeypatch.setattr(use, "UNIT", tmp_path / "unit")
    assert use.start_command(state / "one") == f"andrea-train --run {state}/one"
    use.UNIT.write_text("")
    assert use.start_command(state / "one") == "andrea use one && systemctl start andrea-train"
    andrea("use", "one")
    assert use.start_command(state / "one") == "systemctl start andrea-train"
    assert use.start_command(tmp_path / "far") == f"andrea-train --run {tmp_path}/far"


def test_quotes_and_the_last_line_count(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text('ANDREA_RUN=one\nANDREA_RUN="two"\n')
    assert use.chosen(conf) == "two"


def test_listing(andrea: Andrea, state: Path) -> None:
    """Runs by name, the chosen one marked; what is no run is left out."""
    (state / "lost+found").mkdir()
    (state / ".one.5.tmp").mkdir()
    andrea("use", "two")
    found = andrea("list", "--json").json
    assert [(run["name"], run["state"], run["chosen"]) for run in found["runs"]] == [
        ("one", "stopped", False),
        ("two", "stopped", True),
    ]
    assert andrea("list").out.splitlines()[2].startswith("* two  stopped")


def test_a_run_that_goes_away_while_it_is_listed(state: Path) -> None:
    assert about(RunDir(state / "gone"), 0.0) is None


def test_an_empty_list(andrea: Andrea, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANDREA_STATE", str(tmp_path / "nothing"))
    done = andrea("list")
    assert (done.code, "no runs in" in done.out) == (0, True)
