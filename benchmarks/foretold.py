"""How closely `andrea check` foretells what a run then takes: a run of about a minute, on this machine, now.

    python benchmarks/foretold.py

Needs a machine that does nothing else meanwhile. Ends with 1 when time or disk is off by more than 10 %.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from harness import make_run, start, texts

CHANGES: dict[str, dict[str, Any]] = {
    "run": {"threads": 2},
    "model": {"vocab_size": 257, "d_model": 128, "n_heads": 4, "n_layers": 4, "context": 256},
    "optimizer": {"max_steps": 400, "warmup_steps": 10, "batch_size": 8},
    "checkpoint": {"every": 100},
    "samples": {"tokens": 64},
    "probe": {"every": 200, "held_out": 0.05},
}


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = make_run(folder / "run", changes=CHANGES, arms=texts(folder / "texts", words=40_000))
        command = [sys.executable, "-m", "andrea_cli.main", "check", str(run.root), "--json"]
        foretold = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        began = time.monotonic()
        with start(run) as trainer:
            assert trainer.wait(600) == 0, trainer.said()
        took = time.monotonic() - began
        kept = sum(path.stat().st_size for path in run.checkpoints().values())
        rows = (
            ("time, s", foretold["seconds"]["total"], took),
            ("checkpoints kept, MB", foretold["disk"]["kept"] / 1e6, kept / 1e6),
        )
        print(f"{'':<22}{'foretold':>10}{'true':>10}{'off by':>8}")
        for title, said, true in rows:
            print(f"{title:<22}{said:>10.1f}{true:>10.1f}{said / true - 1:>8.1%}")
        return int(any(abs(said / true - 1) > 0.1 for _, said, true in rows))


if __name__ == "__main__":
    raise SystemExit(main())
