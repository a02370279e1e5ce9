"""What it costs to start the operator's command: processor time of `--help` and `status`, beside a bare interpreter.

python benchmarks/startup.py RUN
"""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median

ROUNDS = 15


def cost(*arguments: str) -> float:
    """Seconds of processor time of one start."""
    child = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, child.returncode, used = os.wait4(child.pid, 0)
    return used.ru_utime + used.ru_stime


def main() -> None:
    commands = {
        "python -c pass": ("-c", "pass"),
        "andrea --help": ("-m", "andrea_cli.main", "--help"),
        "andrea status RUN": ("-m", "andrea_cli.main", "status", sys.argv[1]),
    }
    costs: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, arguments in commands.items():
            costs[name].append(cost(*arguments))
    bare = median(costs["python -c pass"])
    for name, found in costs.items():
        print(f"{name:<20} {1000 * median(found):5.0f} ms ({median(found) / bare:.1f} times a bare interpreter)")


if __name__ == "__main__":
    main()
