"""How long `andrea plot` takes on a history of 200,000 steps, beside one of 2,000: whole processes.

    python benchmarks/plot.py

Prints medians, by the processor and by the clock; exits 1 when the long one takes 3 seconds or more of the processor.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from andrea_rundir.entries import entry_of
from andrea_rundir.eventlog import EventLog
from andrea_rundir.lossfile import LossFile
from andrea_rundir.names import RunDir

ROUNDS = 5
BATCH, CONTEXT, ARMS = 8, 1024, 8
BOUND = 3.0


def made_up(folder: Path, count: int) -> RunDir:
    """A run of `count` steps: entries and events as a run of eight arms has them, an audit every 100 steps."""
    folder.mkdir()
    run = RunDir(folder)
    run.run_toml.write_text('[run]\nname = "made-up"\n')
    loss, log, ema = LossFile(run.loss), EventLog(run.events), None
    log.append("start", step=0, furthest=0, attempt=1)
    entries = []
    for step in range(1, count + 1):
        value = 2.0 + 4.0 / (1 + step / 500) ** 0.5 + 0.1 * ((step * 2654435761) % 1000 / 1000)
        pulls = {f"source-{(step + i) % ARMS:02d}": [2, value, 8642] for i in range(0, ARMS, 2)}
        event = {
            "step": step,
            "loss": value,
            "arms": pulls,
            "lr": 3e-4,
            "grad_norm": 0.987654321,
            "tokens": BATCH * CONTEXT,
            "seconds": 0.123456789,
            "policy": "0-0123456789ab" if step <= count // 2 else f"{count // 2}-ba9876543210",
            "flags": [],
        }
        log.append("step", **event, cursors=dict.fromkeys(pulls, step), credits=dict.fromkeys(pulls, 123456))
        entries.append(entry_of({**event, "time": "2026-11-29T21:30:00.000Z"}, 1, ema))
        ema = entries[-1]["ema"]
        if step % 100 == 0:
            text = {"prompt": "Once", "text": "upon a time " * 20, "looped": False, "why": None}
            log.append("audit", step=step, score=100.0, samples=[text] * 6)
        if step % 1000 == 0:
            log.append("probe", step=step, arms=dict.fromkeys(pulls, value / 2), mean=value / 2)
            loss.append(entries)
            entries = []
    loss.close()
    log.close()
    return run


def cost(run: RunDir, kind: str) -> tuple[float, float]:
    """Seconds of processor time, and of the clock, of one `andrea plot`."""
    command = [sys.executable, "-m", "andrea_cli.main", "plot", str(run.root), "--out", f"{run.root}.{kind}"]
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def main() -> int:
    """Measure, print, judge."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {count: made_up(Path(folder) / str(count), count) for count in (2_000, 200_000)}
        cost(runs[2_000], "png")  # the list of fonts is made once a user
        costs: dict[tuple[int, str], list[tuple[float, float]]] = {
            (count, kind): [] for count in runs for kind in ("png", "svg")
        }
        for _ in range(ROUNDS):
            for (count, kind), found in costs.items():
                found.append(cost(runs[count], kind))
    medians = {key: [statistics.median(column) for column in zip(*found, strict=True)] for key, found in costs.items()}
    for (count, kind), (processor, clock) in medians.items():
        ratio = processor / medians[2_000, kind][0]
        times = f"{ratio:.1f} times that of 2,000 steps"
        print(f"{count:>7,} steps, {kind}: {processor:.2f} s of processor ({times}), {clock:.2f} s by the clock")
    return 0 if max(processor for processor, _ in medians.values()) < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
