"""All questions of speed, one after another, in one table: `make bench`.

    python benchmarks/bench.py [--quick]

Ours is held against what a user would pick instead and against the physical limit. Ends with how many bars were met; a
missed one is a figure, not an error, so the exit code is 0.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import UTC, datetime
from types import ModuleType

import proxy_cost
import publish
import resume_speed
import sampling
import stall
import step
from pairs import HEADER

QUESTIONS: tuple[ModuleType, ...] = (publish, stall, resume_speed, step, proxy_cost, sampling)


def load() -> str:
    """When it is, and how many processes wanted a processor of late."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return f"{now}, load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} processors"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all")
    args = parser.parse_args()
    began, met = time.monotonic(), []
    print(f"{load()}\n\n{HEADER}")
    for question in QUESTIONS:
        for row in question.rows(args.quick):
            print(row.line(), flush=True)
            met += [row.met] if row.met is not None else []
    print(f"\n{load()}; {time.monotonic() - began:.0f} s")
    print(f"{sum(met)} of {len(met)} bars met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
