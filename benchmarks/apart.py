"""A measurement in a process of its own: no allocator, cache or thread of one side is left for the other.

A script calls `main(measures, rows)`. `python SCRIPT` prints its rows; `python SCRIPT --only NAME ARGUMENT...`, which
`apart` runs, prints what one measure found as JSON. `--quick` takes small sizes, to see that a script works.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pairs import HEADER, Row

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]  # the harness, which makes runs

Measure = Callable[..., Any]


def apart(script: str, name: str, *arguments: object) -> Any:
    """What the measure `name` of `script` finds in a new process. Its words, if it fails, are the error."""
    # As the trainer has it: threads that wait for each other sleep. Both sides of a pair run under the same rule.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    command = [sys.executable, script, "--only", name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{name} {arguments}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main(measures: Mapping[str, Measure], rows: Callable[[bool], Iterator[Row]]) -> int:
    """The command line of a script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all")
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        name, *arguments = args.only
        print(json.dumps(measures[name](*arguments)))
        return 0
    print(HEADER)
    for row in rows(args.quick):
        print(row.line(), flush=True)
    return 0


def memory(field: str) -> int:
    """Bytes of this process in memory: `VmRSS` now, `VmHWM` at most so far."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


def forget_peak() -> None:
    """Let VmHWM start anew from what is in use now; what the C library holds freed goes back first."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def evict(path: Path) -> None:
    """Drop a file that is on the disk from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder on the disk on which this is called (/tmp may be memory), by its whole path; it goes at the end."""
    folder = Path.cwd() / "bench-out"
    folder.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(dir=folder)
