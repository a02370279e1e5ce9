"""What the proxy costs: one append at entry 1,000 and at entry 200,000, one round's decision, memory on a long history.

    python benchmarks/proxy_cost.py

Prints medians; exits 1 when a bound is missed (append ratio 1.2; 5 ms a round at 16 arms, 50 ms at 256; 100 MB).
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from andrea_corpus.rounds import Regime, Standing, lay_out
from andrea_proxy import learners
from andrea_proxy.learners import StepRecord
from andrea_rundir.lossfile import LossFile
from andrea_rundir.policy import Arm, Policy, dump, policy_id

BATCH, ROUND, CONTEXT = 8, 20, 1024


def entry(step: int, arms: int = 8) -> dict[str, Any]:
    """An entry as a run of 16 arms and batch 8 has it."""
    return {
        "step": step,
        "attempt": 1,
        "loss": 2.0 + 1 / (1 + step),
        "ema": 2.1234567890123456,
        "arms": {f"source-{i:02d}": [1, 2.3456789012345678, 4321] for i in range(arms)},
        "lr": 3e-4,
        "grad_norm": 0.987654321,
        "tokens": BATCH * CONTEXT,
        "seconds": 0.123456789,
        "policy": "0-0123456789ab",
        "flags": [],
        "time": "2026-11-29T21:30:00.000Z",
    }


def appends(folder: Path) -> dict[int, float]:
    """Median microseconds of one append, by number of entries before it; the two sizes take turns."""
    files = {}
    for size in (1_000, 200_000):
        files[size] = LossFile(folder / f"{size}.json")
        for start in range(1, size, 1000):
            files[size].append([entry(step) for step in range(start, start + 1000)])
    seconds: dict[int, list[float]] = {size: [] for size in files}
    gc.disable()
    for i in range(1, 2001):
        for size, loss in files.items():
            new = [entry(size + i)]
            began = time.perf_counter()
            loss.append(new)
            seconds[size].append(time.perf_counter() - began)
    gc.enable()
    return {size: 1e6 * statistics.median(taken) for size, taken in seconds.items()}


def decision(arms: int) -> float:
    """Median milliseconds from a learner that has seen 500 steps to a round with every step dealt."""
    names = [f"source-{i:03d}" for i in range(arms)]
    policy = Policy(arms={name: Arm(path=f"/{name}", floor=0.2 / arms) for name in names})
    text = dump(policy)
    prints = {name: f"{i:016x}" for i, name in enumerate(names)}
    regime = Regime(policy_id(text, 0), policy, text, prints, dict.fromkeys(names, 50_000))
    learner = learners.make("slope", 1337)
    for step in range(1, 501):
        pulled = [names[(step * BATCH + i) % arms] for i in range(BATCH)]
        seen = {name: (1, 2.0 + (1 + step + i) ** -0.3, 4000) for i, name in enumerate(pulled)}
        learner.observe(StepRecord(step, CONTEXT, seen, dict.fromkeys(seen, 0.1)))
    zero = dict.fromkeys(names, 0)
    here = Standing(500, regime.id, prints, zero, zero)
    taken = []
    for _ in range(15):
        began = time.perf_counter()
        weights = learner.weights(names, dict.fromkeys(names, 1.0), dict.fromkeys(names, 0.1))
        laid = lay_out(regime, here, 25, 500 + ROUND, weights=weights, batch_size=BATCH)
        taken.append(time.perf_counter() - began)
        assert laid is not None
    return 1e3 * statistics.median(taken)


MEMORY = """
import resource, sys
from pathlib import Path
import andrea_proxy.service
from andrea_rundir.lossfile import LossFile
loss = LossFile(Path(sys.argv[1]))
print(loss.entries, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def main() -> int:
    """Measure all, print, judge."""
    with tempfile.TemporaryDirectory() as folder:
        median = appends(Path(folder))
        ratio = median[200_000] / median[1_000]
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, f"{folder}/200000.json"], capture_output=True, text=True, check=True
        )
        opened, (count, peak) = time.perf_counter() - began, map(int, done.stdout.split())
    few, many = decision(16), decision(256)
    print(f"one append: {median[1_000]:.1f} us at entry 1,000, {median[200_000]:.1f} us at 200,000: ratio {ratio:.2f}")
    print(f"a proxy's start on {count:,} entries: {opened:.1f} s, peak {peak} MB")
    print(f"one round's decision: {few:.1f} ms at 16 arms, {many:.1f} ms at 256")
    return 0 if ratio <= 1.2 and few <= 5 and many <= 50 and peak < 100 else 1


if __name__ == "__main__":
    sys.exit(main())
