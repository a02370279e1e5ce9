"""SHA256SUMS: one line a checkpoint, as `sha256sum` writes and checks it (`sha256sum -c --ignore-missing`).

Written by the trainer only, replaced atomically. Imports the standard library and our publish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from andrea_rundir.publish import publish

_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *]([^/\\]+)")


def read(path: Path) -> dict[str, str]:
    """Name -> 64 lower-case hex digits; empty without a file. A malformed line counts as missing."""
    try:
        text = path.read_bytes().decode(errors="surrogateescape")
    except FileNotFoundError:
        return {}
    found = (_LINE.fullmatch(line) for line in text.split("\n"))
    return {match[2]: match[1].lower() for match in found if match}


def record(path: Path, name: str, hexdigest: str) -> None:
    """Makes the line of `name` durable, replacing an older one. OSError leaves the file as it was."""
    _write(path, {**read(path), name: hexdigest})


def forget(path: Path, names: Iterable[str]) -> None:
    """Removes the lines of `names`; nothing is written when there are none."""
    lines = read(path)
    gone = lines.keys() & set(names)
    if gone:
        _write(path, {name: digest for name, digest in lines.items() if name not in gone})


def _write(path: Path, lines: dict[str, str]) -> None:
    text = "".join(f"{digest}  {name}\n" for name, digest in lines.items())
    publish(path, text.encode(errors="surrogateescape"))
