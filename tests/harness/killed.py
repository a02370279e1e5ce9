"""Kills a command at every one of its writes, one after the other, until what it makes is there.

`python -m harness.killed WATCHED MADE MODULE ARGUMENTS...` runs the `main` of MODULE in a child that gets SIGKILL at
its first write, then in one that gets it at its second, and so on, until MADE is there: whoever asked may look whether
it is whole. After each of them WATCHED must be what it was, byte for byte. Prints how many were killed before. Nobody
cuts the power here: fsync only counts as a write.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.commands import snapshot

WRITES = ("fsync", "rename", "link", "mkdir", "write")


def arm(call: int) -> None:
    """The `call`-th write of this process is its last."""
    count = 0

    def hurt(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return None if name == "fsync" else real(*args, **kwargs)

        return act

    for name in WRITES:
        setattr(os, name, hurt(name, getattr(os, name)))


def main() -> None:
    watched, made, module = Path(sys.argv[1]), Path(sys.argv[2]), importlib.import_module(sys.argv[3])
    before, kills = snapshot(watched), 0
    while not os.path.lexists(made):
        child = os.fork()
        if child == 0:
            with contextlib.redirect_stdout(io.StringIO()):
                arm(kills + 1)
                os._exit(module.main(sys.argv[4:]))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL), f"exit code {code}"
        assert snapshot(watched) == before, f"{watched} is not what it was, after {kills} writes"
        kills += 1
    print(kills)


if __name__ == "__main__":
    main()
