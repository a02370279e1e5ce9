"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from andrea_cli.main import main
from andrea_rundir.events import EventLog
from andrea_rundir.names import RunDir
from harness.commands import CONFIG, Andrea, Done, Tell, Wish


@pytest.fixture
def andrea(capsys: pytest.CaptureFixture[str]) -> Andrea:
    """Runs `andrea ARGUMENTS` here; whatever it says, it shows no traceback."""

    def call(*arguments: object) -> Done:
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return Done(code, shown.out, shown.err)

    return call


@pytest.fixture
def wish(tmp_path: Path) -> Wish:
    made = Wish(tmp_path)
    (tmp_path / "texts").mkdir()
    made.source.write_text("the quick brown fox jumps over the lazy dog\n" * 100)
    (tmp_path / "texts" / "b.md").write_text("# pack my box with five dozen liquor jugs\n" * 100)
    made.config.write_text(CONFIG)
    made.policy.write_text('[arms.a]\npath = "texts/a.txt"\n[arms.b]\npath = "texts/*.md"\nfloor = 0.25\n')
    return made


@pytest.fixture
def made_up(tmp_path: Path) -> RunDir:
    """A run directory with a run.toml and nothing else."""
    root = tmp_path / "made-up"
    root.mkdir()
    (root / "run.toml").write_text(CONFIG.replace("[run]\n", '[run]\nname = "made-up"\n'))
    return RunDir(root)


@pytest.fixture
def tell(made_up: RunDir) -> Tell:
    """Writes events into the made-up run, each at the `time` (seconds since the epoch) it names."""

    def write(events: list[dict[str, Any]]) -> None:
        now = [0.0]
        log = EventLog(made_up.events, clock=lambda: now[0])
        for event in events:
            fields = dict(event)
            now[0] = fields.pop("time", now[0])
            log.append(fields.pop("event"), **fields)
        assert log.close()

    return write
