"""What a test needs of the machine: without it the test is skipped, and where CI is set it fails. The only skip."""

from __future__ import annotations

import os

import pytest


def no_root() -> str | None:
    """What this process lacks where a test needs root; None if nothing."""
    return None if os.geteuid() == 0 else "root"


def demand(what: str, lacking: str | None) -> None:
    """Go on only if nothing is lacking for testing `what`."""
    if lacking is not None:
        assert "CI" not in os.environ, f"{what}: not tested, for want of {lacking}"
        pytest.skip(f"{what}: needs {lacking}")
