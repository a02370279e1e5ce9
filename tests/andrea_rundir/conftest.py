"""Real faults: full disks, and processes whose system calls the kernel's tracer makes fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("real files", deadline=None)  # an fsync takes as long as it takes
settings.load_profile("real files")


@pytest.fixture
def traced(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[int, str, list[str]]]:
    """Runs Python code under strace: `traced(code, calls, *injections)` -> exit status, output, calls made."""

    def run(code: str, calls: str, *injections: str) -> tuple[int, str, list[str]]:
        log = tmp_path_factory.mktemp("trace") / "log"
        faults = [part for injection in injections for part in ("-e", f"inject={injection}")]
        command = ["strace", "-f", "-qq", "-y", "-s", "64", "-o", str(log), "-e", f"trace={calls}", *faults]
        done = subprocess.run(
            [*command, sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        lines = [line.partition(" ")[2].strip() for line in log.read_text().splitlines()]
        return done.returncode, done.stdout, lines

    return run


@pytest.fixture
def fill() -> Callable[[Path], Path]:
    """Fills the disk under a folder to the last byte, with a file whose removal frees it again."""

    def make(folder: Path) -> Path:
        ballast = folder / "ballast"
        fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
        piece = 1 << 20
        while piece:
            try:
                os.write(fd, b"x" * piece)
            except OSError:
                piece //= 2
        os.close(fd)
        return ballast

    return make
