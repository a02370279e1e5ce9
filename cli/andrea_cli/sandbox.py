"""What the services can see of this machine: whether the Python that runs us would run for them too.

Reads only. Standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from andrea_rundir.faults import Refused

HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""Folders that ProtectHome= and PrivateTmp= of the units take away."""


def check() -> None:
    """Refused when the interpreter, its library or one of our packages is out of the services' sight."""
    for what, path in _needed():
        if (why := hides(path)) is not None:
            raise Refused(
                f"the services could not see {what}",
                where=str(path),
                found=why,
                expected="a Python and a virtual environment that every user can read, outside of home directories",
                todo="/usr/bin/python3 -m venv /opt/andrea/venv, install andrea-train into it, "
                "and run its `andrea units install`",
            )


def _needed() -> Iterable[tuple[str, Path]]:
    yield "this Python", Path(sys.executable)
    yield "the virtual environment", Path(sys.prefix)
    yield "the Python that it was made from", Path(sys.base_prefix)
    for name in ("andrea_train", "torch"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield f"the package {name}", Path(spec.origin)


def hides(path: Path) -> str | None:
    """Why another user in the units' sandbox cannot read `path`, or what it links to; None when they can."""
    for seen in (path, Path(os.path.realpath(path))):
        for folder in HIDDEN:
            if seen.is_relative_to(folder):
                return f"{seen}: the sandbox hides {folder}"
        for part in (*reversed(seen.parents), seen):
            mode = part.stat().st_mode
            if stat.S_ISDIR(mode) and not mode & stat.S_IXOTH:
                return f"{part} is closed to other users"
        if not seen.stat().st_mode & stat.S_IROTH:
            return f"{seen} cannot be read by other users"
    return None
