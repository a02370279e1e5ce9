"""How closely `andrea check` foretells what a run then takes: a run of about a minute, on this machine, now.

    python benchmarks/foretold.py

`check` is asked before the run and after it, and the mean of the two held against the run, so that a machine whose
speed drifts does not decide. Ends with 1 when time or disk is off by more than 10 %.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from andrea_rundir.events import segments
from harness import make_run, start, texts

CHANGES: dict[str, dict[str, Any]] = {
    "run": {"threads": 2},
    "model": {"vocab_size": 257, "d_model": 128, "n_heads": 4, "n_layers": 4, "context": 256},
    "optimizer": {"max_steps": 400, "warmup_steps": 10, "batch_size": 8},
    "checkpoint": {"every": 100},
    "samples": {"tokens": 64},
    "probe": {"every": 200, "held_out": 0.05},
}


def check(folder: Path, name: str) -> dict[str, Any]:
    """What it foretells for a fresh run of this kind."""
    run = make_run(folder / name, changes=CHANGES, arms=texts(folder / "texts", words=40_000))
    command = [sys.executable, "-m", "andrea_cli.main", "check", str(run.root), "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = check(folder, "before")
        run = make_run(folder / "run", changes=CHANGES, arms=texts(folder / "texts", words=40_000))
        began = time.monotonic()
        with start(run) as trainer:
            assert trainer.wait(600) == 0, trainer.said()
        took = time.monotonic() - began
        kept = sum(path.stat().st_size for path in run.checkpoints().values())
        history = sum(path.stat().st_size for path in segments(run.events))
        both = (before, check(folder, "after"))
        rows = (
            ("time, s", fmean(one["seconds"]["total"] for one in both), took),
            ("checkpoints kept, MB", fmean(one["disk"]["kept"] for one in both) / 1e6, kept / 1e6),
            ("history, MB", fmean(one["disk"]["history"] for one in both) / 1e6, history / 1e6),
        )
        print(f"{'':<22}{'foretold':>10}{'true':>10}{'off by':>8}")
        for title, said, true in rows:
            print(f"{title:<22}{said:>10.1f}{true:>10.1f}{said / true - 1:>8.1%}")
        return int(any(abs(said / true - 1) > 0.1 for _, said, true in rows))


if __name__ == "__main__":
    raise SystemExit(main())
