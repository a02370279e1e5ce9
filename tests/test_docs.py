"""The documents say what is: tables of docs/run-directory.md against the code and against a real run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from andrea_rundir.events import read
from andrea_rundir.layout import PRESETS
from andrea_rundir.names import RunDir, checkpoint_step
from harness import make_run, start

ROOT = Path(__file__).parents[1]
CONTRACT = (ROOT / "docs" / "run-directory.md").read_text()


def table(header: str) -> list[list[str]]:
    """The rows of the first table whose header line starts with `header`, cell by cell."""
    lines = CONTRACT.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(header)) + 2
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def code_words(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run that was told to go on once more, so that it has a bit of everything."""
    made = make_run(tmp_path_factory.mktemp("docs") / "run", changes={"optimizer": {"max_steps": 30}})
    with start(made) as trainer:
        assert trainer.wait() == 0, trainer.said()
    return made


def test_every_file_of_a_run_is_in_the_table(run: RunDir) -> None:
    names = {word.rstrip("/") for row in table("| file |") for word in code_words(row[0])}
    for path in run.root.iterdir():
        known = "step_NNNNNN.bin" if checkpoint_step(path.name) is not None else path.name
        assert known in names, f"{path.name} is not in docs/run-directory.md"


def test_every_event_is_in_the_table_with_its_fields(run: RunDir) -> None:
    rows = {next(iter(code_words(row[0]))): code_words(row[1]) for row in table("| event |")}
    seen = set()
    for event in read(run.events):
        kind, fields = event["event"], set(event) - {"event", "time"}
        assert fields == rows[kind], f"{kind} has {fields}, the table {rows[kind]}"
        seen.add(kind)
    assert seen >= {"start", "fallback", "step", "snapshot", "checkpoint", "probe", "audit", "stop"}


def test_every_kind_of_event_in_the_code_is_in_the_table() -> None:
    code = "".join(path.read_text() for path in (ROOT / "daemon" / "andrea_train").glob("*.py"))
    kinds = set(re.findall(r'\.append\(\s*"([a-z]+)"', code))
    assert kinds == {next(iter(code_words(row[0]))) for row in table("| event |")}


def test_the_sizes_are_right() -> None:
    for name, size in (("andrea-12m", "153,363,464"), ("andrea-120m", "1,184,385,032")):
        assert f"{size} for `{name}`" in CONTRACT
        assert 8 + 12 * PRESETS[name].n_params == int(size.replace(",", ""))


def test_the_printed_lines_read_and_write_a_checkpoint(run: RunDir, tmp_path: Path) -> None:
    reading, writing = re.findall(r"```python\n(.*?)```", CONTRACT, re.DOTALL)
    reading = reading.replace("step_000100.bin", str(run.checkpoint(30)))
    printed = subprocess.run([sys.executable, "-c", reading], capture_output=True, text=True, check=True).stdout
    raw = np.fromfile(run.checkpoint(30), "<i4", 2)
    assert printed.split()[:2] == [str(raw[0]), str(raw[1])]
    subprocess.run([sys.executable, "-c", writing], cwd=tmp_path, check=True)
    n = PRESETS["andrea-tiny"].n_params
    assert (tmp_path / "step_000000.bin").stat().st_size == 8 + 12 * n


def test_links_between_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_commands_in_the_readme_exist() -> None:
    shown = set(re.findall(r"^andrea ([a-z-]+) ", (ROOT / "README.md").read_text(), re.MULTILINE))
    listed = subprocess.run(
        [sys.executable, "-m", "andrea_cli.main", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert shown
    assert all(re.search(rf"^\s+{verb}\b", listed, re.MULTILINE) for verb in shown)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?m)(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text())) <= targets
