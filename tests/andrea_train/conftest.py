"""Runs and texts that several tests of the trainer start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from andrea_rundir.names import RunDir
from harness import make_run, texts

Make = Callable[..., RunDir]


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two arms of text, written once: equal paths give equal policies."""
    return texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory, sources: dict[str, Path]) -> Iterator[Make]:
    """Makes a small prepared run; `changes` go over the small configuration."""

    def made(name: str, changes: dict[str, Any] | None = None, **more: Any) -> RunDir:
        return make_run(tmp_path_factory.mktemp(name) / "run", changes=changes, **{"arms": sources, **more})

    return made
