"""A run of weeks in a process whose garbage is never collected: its memory must not grow with its steps."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from statistics import median

from harness import make_run, start
from harness.waiting import last_step

STEPS = 5_000
MOST = 3 << 20
"""Bytes that memory may differ between the second fifth and the last: a kilobyte a step."""
CHANGES = {
    "model": {"vocab_size": 257, "d_model": 16, "n_heads": 1, "n_layers": 1, "context": 16},
    "optimizer": {"max_steps": STEPS, "batch_size": 2},
    "checkpoint": {"every": 200},
    "probe": {"every": 1000},
    "samples": {"tokens": 4},
}


def test_five_thousand_steps_take_no_more_memory_than_one_thousand(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", changes=CHANGES)
    sizes: list[tuple[int, int]] = []
    edge: dict[str, object] = {"at": "andrea_train.loop:Loop._edge", "do": "STOP"}
    with start(run, hurt=[{**edge, "call": int(0.3 * STEPS)}, {**edge, "call": int(0.9 * STEPS)}]) as trainer:
        while trainer.process.poll() is None:
            status = Path(f"/proc/{trainer.pid}/status").read_text()
            if "VmRSS:" in status:  # else it has just ended
                sizes.append((last_step(run), 1024 * int(status.partition("VmRSS:")[2].split()[0])))
            if trainer.process.poll() is None and trainer.frozen():  # so that there is a look in either part
                trainer.signal(signal.SIGCONT)
            time.sleep(0.2)
        assert trainer.wait() == 0, trainer.said()
    early = [size for step, size in sizes if STEPS / 5 <= step < 2 * STEPS / 5]
    late = [size for step, size in sizes if step >= 4 * STEPS / 5]
    assert early and late, sizes
    assert median(late) - median(early) < MOST, sizes
