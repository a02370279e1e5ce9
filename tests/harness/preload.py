"""A shared library made of one C file, for the loader to put before others of its name or its functions."""

from __future__ import annotations

import subprocess
from pathlib import Path


def library(source: Path, target: Path) -> Path:
    """`target`, compiled from `source`."""
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-o", target, source], check=True, timeout=60)
    return target
