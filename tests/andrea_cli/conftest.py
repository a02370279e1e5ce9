"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from andrea_cli.main import main
from andrea_corpus.prepare import prepare
from andrea_corpus.tokenizer import ByteTokenizer
from andrea_rundir import policy
from andrea_rundir.eventlog import EventLog
from andrea_rundir.names import RunDir
from harness import make_run
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


@pytest.fixture(scope="session")
def rules(sources: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Policies: A as runs begin, B renames an arm, drops one and adds one, C drops another and takes that one back."""
    third = tmp_path_factory.mktemp("third") / "third.txt"
    third.write_text("abc, abd, abe; what follows is not known yet\n" * 200)
    prose, sums = (f'path = "{sources[name]}"\n' for name in ("prose", "sums"))
    written = {
        "A": f"[arms.prose]\n{prose}[arms.sums]\n{sums}",
        "B": f'learner = "ucb1"\n[arms.novels]\n{prose}cap = 0.75\n[arms.third]\npath = "{third}"\nfloor = 0.25\n',
        "C": f'[arms.sums]\n{sums}[arms.third]\npath = "{third}"\ncap = 0.5\n',
    }
    return {name: policy.dump(policy.parse(text, name, Path("/"))) for name, text in written.items()}


@pytest.fixture(scope="session")
def fresh(rules: dict[str, str]) -> Callable[..., RunDir]:
    """Makes a run that begins with one of these policies, with the shards of all."""

    def made(folder: Path, changes: dict[str, dict[str, object]], first: str = "A") -> RunDir:
        arms = {name: Path(str(arm.path)) for name, arm in policy.parse(rules[first], "", folder).arms.items()}
        run = make_run(folder, changes=changes, arms=arms)
        run.policy_toml.write_text(rules[first])
        for text in rules.values():
            prepare(run, policy.parse(text, "", folder), ByteTokenizer(), held_out=0.1, context=32)
        return run

    return made
