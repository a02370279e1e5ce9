"""What it costs to start the operator's command: the verbs that people type often, beside a bare interpreter.

    python benchmarks/startup.py RUN

Prints medians, by the processor and by the clock; exits 1 when a verb takes 150 ms or more of the processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROUNDS = 15
BOUND = 0.150


def cost(*arguments: str) -> tuple[float, float]:
    """Seconds of processor time, and of the clock, of one start."""
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, child.returncode, used = os.wait4(child.pid, 0)
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def main() -> int:
    run = Path(sys.argv[1]).absolute()
    os.environ["ANDREA_STATE"] = str(run.parent)
    commands = {
        "python -c pass": ("-c", "pass"),
        "andrea --help": ("-m", "andrea_cli.main", "--help"),
        "andrea status RUN": ("-m", "andrea_cli.main", "status", str(run)),
        "andrea checkpoint RUN": ("-m", "andrea_cli.main", "checkpoint", str(run)),
        "andrea list": ("-m", "andrea_cli.main", "list"),
    }
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, arguments in commands.items():
            costs[name].append(cost(*arguments))
    medians = {name: [median(column) for column in zip(*found, strict=True)] for name, found in costs.items()}
    bare = medians["python -c pass"][0]
    for name, (processor, clock) in medians.items():
        times = f"{processor / bare:.1f} times a bare interpreter"
        print(f"{name:<22} {1000 * processor:4.0f} ms of processor ({times}), {1000 * clock:4.0f} ms by the clock")
    return 0 if max(processor for processor, _ in medians.values()) < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
