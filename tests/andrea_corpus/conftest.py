"""Real files: an fsync takes as long as it takes, so hypothesis times nothing here."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from harness.sources import Place

settings.register_profile("real files", deadline=None)
settings.load_profile("real files")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
