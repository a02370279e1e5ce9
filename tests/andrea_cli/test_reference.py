from __future__ import annotations

from pathlib import Path

from andrea_cli.main import VERBS
from andrea_cli.reference import page

FILE = Path(__file__).parents[2] / "docs" / "reference.md"


def test_the_page_is_what_the_parsers_say() -> None:
    assert FILE.read_text() == page(), "python -m andrea_cli.reference > docs/reference.md"


def test_every_command_is_in_it() -> None:
    for command in (*(f"andrea {verb}" for verb in VERBS), "andrea-train", "andrea-proxy"):
        assert f"\n## {command}\n" in page()


def test_arguments_stand_as_they_are_typed() -> None:
    for line in (
        "andrea status RUN [--verify] [--watch [SECONDS]]",
        "andrea plot RUN --out FILE",
        "andrea units {install,uninstall} [--prefix DIR] [--dry-run]",
        "andrea-train --run RUN [--until-step N]",
        "| `--watch [SECONDS]` | show it again every so often (default 2), until Ctrl-C |",
    ):
        assert f"\n{line}\n" in page()
