"""Files of lines read from their end: the newest of a long history costs no more than of a short one.

Standard library only; writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

BLOCK = 1 << 16
"""Bytes read at once."""


def back(path: Path) -> Iterator[bytes]:
    """The pieces between newlines, last first, beginning with what follows the last newline (often nothing).

    OSError when the file cannot be read.
    """
    with path.open("rb") as file:
        end, rest = file.seek(0, os.SEEK_END), b""
        while end > 0:
            start = max(0, end - BLOCK)
            file.seek(start)
            first, *lines = (file.read(end - start) + rest).split(b"\n")
            yield from reversed(lines)
            end, rest = start, first
    yield rest
