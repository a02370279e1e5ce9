"""One unattended check of a CUDA machine, at most 3 minutes: twins, signals, precisions, compile, speed, stall.

    make gpu-check

Ends with exit 1 if anything is not as it must be, 69 without a usable CUDA device.
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from andrea_rundir.events import read
from andrea_rundir.layout import PRESETS
from andrea_rundir.names import RunDir
from harness import make_run, start, texts, twin_diff, until, wait_step

UPDATE = "andrea_train.optimizer:AdamW.step"
WRITE = "andrea_rundir.publish:_write_image"
VARIANTS: dict[str, dict[str, Any]] = {
    "fp32": {"precision": "fp32"},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "bf16, compiled": {"precision": "bf16", "compile": True},
}


def twin(folder: Path, name: str, run_section: dict[str, Any], sources: dict[str, Path]) -> str:
    """A run killed twice equals the run that was left alone."""
    changes = {"run": {"device": "cuda:0", **run_section}}
    whole = make_run(folder / f"{name}-whole", changes=changes, arms=sources)
    hurt = make_run(folder / f"{name}-hurt", changes=changes, arms=sources)
    with start(whole) as trainer:
        assert trainer.wait(120) == 0, trainer.said()
    for at, call in ((UPDATE, 23), (WRITE, 2)):
        with start(hurt, hurt=[{"at": at, "call": call, "do": "KILL"}]) as trainer:
            assert trainer.wait(120) == -9, trainer.said()
    with start(hurt) as trainer:
        assert trainer.wait(120) == 0, trainer.said()
    different = twin_diff(hurt, whole, 60, cadence=10)
    return "equal, byte for byte" if not different else f"DIFFERENT: {different[0]}"


def signals(folder: Path, sources: dict[str, Path]) -> str:
    """SIGUSR1 saves and goes on, SIGTERM saves and ends."""
    changes = {"run": {"device": "cuda:0"}, "optimizer": {"max_steps": 100_000}, "checkpoint": {"every": 1000}}
    run = make_run(folder / "signals", changes={**changes, "probe": {"every": 1000}}, arms=sources)
    with start(run) as trainer:
        wait_step(run, 5, 120)
        trainer.signal(signal.SIGUSR1)
        until("a checkpoint", lambda: len(run.checkpoints()) == 2)
        trainer.signal(signal.SIGTERM)
        code = trainer.wait()
    return "saved, went on, saved, ended with 0" if code == 0 and len(run.checkpoints()) == 3 else f"WRONG: {code}"


def speed(folder: Path, sources: dict[str, Path], compiled: bool) -> str:
    """Tokens a second and the stall of a checkpoint, for andrea-12m in bf16."""
    shape = PRESETS["andrea-12m"]
    changes = {
        "run": {"device": "cuda:0", "precision": "bf16", "compile": compiled},
        "model": {
            "vocab_size": shape.vocab_size,
            "d_model": shape.d_model,
            "n_heads": shape.n_heads,
            "n_layers": shape.n_layers,
            "context": shape.context,
        },
        "optimizer": {"batch_size": 8, "max_steps": 120},
        "checkpoint": {"every": 40},
        "probe": {"every": 120},
        "samples": {"tokens": 1},
    }
    run = make_run(folder / f"speed-{compiled}", changes=changes, arms=sources)
    with start(run) as trainer:
        assert trainer.wait(170) == 0, trainer.said()
    steps = [event for event in read(run.events) if event["event"] == "step" and event["step"] > 20]
    plain = statistics.median(event["seconds"] for event in steps)
    tokens = steps[0]["tokens"] / plain
    return (
        f"{tokens:,.0f} tokens/s, stall of a checkpointed step {1000 * stall(run):.0f} ms (audit of 1 token included)"
    )


def stall(run: RunDir) -> float:
    """Median extra wall time between the steps around a checkpoint."""
    times = {e["step"]: datetime.fromisoformat(e["time"]) for e in read(run.events) if e["event"] == "step"}
    gaps = {s: (times[s] - times[s - 1]).total_seconds() for s in times if s - 1 in times and s > 21}
    plain = statistics.median(gap for s, gap in gaps.items() if s % 40 != 1)
    return statistics.median(gap for s, gap in gaps.items() if s % 40 == 1) - plain


def main() -> int:
    if not torch.cuda.is_available():
        print("gpu-check: not measured: no usable CUDA device on this machine")
        return 69
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    began, wrong = time.monotonic(), False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = texts(folder / "texts", words=40_000)
        checks = [(f"twin, {title}", lambda t=title, s=s: twin(folder, t, s, sources)) for title, s in VARIANTS.items()]
        checks.append(("signals", lambda: signals(folder, sources)))
        checks += [(f"speed, compiled={c}", lambda c=c: speed(folder, sources, c)) for c in (False, True)]
        for title, check in checks:
            try:
                found = check()
            except AssertionError as error:
                found = f"WRONG: {error}"
            wrong = wrong or "WRONG" in found or "DIFFERENT" in found
            print(f"{title:<24} {found}", flush=True)
    print(f"{time.monotonic() - began:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
