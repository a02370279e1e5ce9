"""The recording that all tests of power cuts use, made once for all of a test session's workers."""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
from pathlib import Path

from crash.calls import traced
from crash.deeds import Follower
from crash.disk import Tree, passed
from crash.ops import Recording
from harness.processes import TESTS


def make(folder: Path) -> Recording:
    """Record the scenario in a new folder. Replayed, it gives what lies on the disk, or it is no recording."""
    base = folder / "base"
    base.mkdir(parents=True)
    command = [sys.executable, "-m", "crash.scenario", str(base), str(folder / "texts")]
    calls = traced(
        command, folder / "strace.txt", {**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    )
    made = Follower(base).follow(calls)
    *_, disk = passed(made)
    replayed, real = disk.memory(), _tree(base)
    wrong = [path for path in replayed.keys() | real.keys() if replayed.get(path, b"-") != real.get(path, b"-")]
    assert not wrong, f"something went round the recorder: {wrong}"
    return made


def shared(folder: Path) -> Recording:
    """The one that lies in `folder`; who comes first makes it, the others wait."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "recording"
        if not kept.exists():
            kept.write_bytes(pickle.dumps(make(folder / "made")))
        found: Recording = pickle.loads(kept.read_bytes())
        return found


def _tree(base: Path) -> Tree:
    found: Tree = {}
    for path in base.rglob("*"):
        if path.suffix != ".log":
            found[str(path.relative_to(base))] = path.read_bytes() if path.is_file() else None
    return found
