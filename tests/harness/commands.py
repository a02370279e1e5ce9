"""The `andrea` command in tests: what it is given, what it left. The files it takes are there to be spoilt."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG = """\
[run]
device = "cpu"
precision = "fp32"
threads = 1
[model]
vocab_size = 257
d_model = 32
n_heads = 2
n_layers = 1
context = 16
[optimizer]
warmup_steps = 2
max_steps = 40
[checkpoint]
every = 10
[probe]
every = 20
"""


@dataclass
class Done:
    """What a command left: exit code, both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        assert found["schema"] == 1
        return found


Andrea = Callable[..., Done]
Tell = Callable[[list[dict[str, Any]]], None]


@dataclass
class Wish:
    """Files that `andrea init` takes, to be spoilt by tests."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "run.toml"

    @property
    def policy(self) -> Path:
        return self.folder / "policy.toml"

    @property
    def source(self) -> Path:
        return self.folder / "texts" / "a.txt"

    @property
    def run(self) -> Path:
        return self.folder / "runs" / "one"

    @property
    def arguments(self) -> list[object]:
        return ["init", self.run, "--config", self.config, "--policy", self.policy]

    def add(self, file: Path, old: str, new: str) -> None:
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a folder: mode, and content of files."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }
