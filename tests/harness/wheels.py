"""The project as it is installed: a wheel of it, units and all, of its own version or of another."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("common", "daemon", "proxy", "cli", "units", "README.md", "LICENSE", "pyproject.toml")


def build(folder: Path, version: str = "") -> Path:
    """The wheel, in `folder`; `version`: as if it were that one."""
    for part in PARTS:
        source = ROOT / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / part)
    if version:
        project = folder / "pyproject.toml"
        project.write_text(re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', project.read_text()))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))
