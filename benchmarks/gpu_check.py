"""One unattended check of a CUDA machine, at most 5 minutes: twins, signals, then a table of speed for andrea-120m.

    make gpu-check

Ends with exit 1 if anything is not as it must be, 69 without a usable CUDA device; a bar of speed that is missed is a
figure, not an error. Rows for which the time is up are said to be not measured.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gpu_speed
import pairs
import publish
import resume_speed
import stall
import torch
from apart import apart, scratch

from andrea_rundir.events import read
from harness import make_run, start, texts, twin_diff, until, wait_step

UPDATE = "andrea_train.optimizer:AdamW.step"
WRITE = "andrea_rundir.publish:_write_image"
LONGEST_SECONDS = 270
"""After which no new row is begun."""
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
    changes: dict[str, dict[str, Any]] = {
        "run": {"device": "cuda:0"},
        "optimizer": {"max_steps": 100_000},
        "checkpoint": {"every": 1000},
        "probe": {"every": 1000},
    }
    run = make_run(folder / "signals", changes=changes, arms=sources)
    with start(run) as trainer:
        wait_step(run, 5, 120)
        trainer.signal(signal.SIGUSR1)
        until("a checkpoint", lambda: len(run.checkpoints()) == 2)
        trainer.signal(signal.SIGTERM)
        code = trainer.wait()
    if code != 0 or len(run.checkpoints()) != 3:
        return f"WRONG: {code}"
    told = [event for event in read(run.events) if event["event"] == "card"]
    card = f"{told[0]['temperature']} °C, {told[0]['power']} W" if told else "the card tells nothing of itself"
    return f"saved, went on, saved, ended with 0; {card}"


def saving(_quick: bool) -> Iterator[pairs.Row]:
    """Stall, publish and resume of a real run of andrea-120m in bf16 on the card."""
    name, size = "andrea-120m", "98.7M bf16"
    with scratch() as folder:
        run = apart(stall.__file__, "loop", folder, name, 2 * stall.EVERY + 30, "cuda:0", "bf16")
        milliseconds = [1000 * run["stall"]]
        yield pairs.figure("stall of a checkpoint, audit apart", size, milliseconds, " ms", at_most=100.0)
        share = [100 * run["stall"] / (stall.EVERY * run["step"])]
        yield pairs.figure(f"the same at cadence {stall.EVERY}", size, share, " % of the time")
        yield pairs.figure("durable, beside the training", size, [run["save"]], " s")
        start = resume_speed.start_cold(folder)
        yield pairs.figure("exec to the end of the first step", size, [sum(start.values())], " s")
        for phase, seconds in start.items():
            yield pairs.figure(f"of which {phase}", size, [seconds], " s")
    with scratch() as folder:
        sides = publish.sides(folder, name)
        found = pairs.alternate({side: sides[side] for side in ("raw", "bare", "ours", "torch.save")}, 1)
        yield pairs.faster("durable, no digest", size, "raw O_DIRECT", found["bare"], found["raw"], 0.85)
        mine, theirs = ([one["durable"] for one in found[side]] for side in ("ours", "torch.save"))
        yield pairs.faster("durable, digest and all", size, "torch.save + fsync", mine, theirs, 1.8)


def table(began: float) -> None:
    """The rows of speed, until the time is up."""
    print(pairs.HEADER)
    for rows in (saving, gpu_speed.rows):
        source = rows(False)
        while time.monotonic() - began < LONGEST_SECONDS:
            if (row := next(source, None)) is None:
                break
            print(row.line(), flush=True)
        else:
            print(f"the time is up: the rest of {rows.__module__}.{rows.__name__} was not measured")


def main() -> int:
    if not torch.cuda.is_available():
        print("gpu-check: not measured: no usable CUDA device on this machine")
        return 69
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    began, wrong = time.monotonic(), False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = texts(folder / "texts", words=40_000)
        checks = {f"twin, {title}": partial(twin, folder, title, s, sources) for title, s in VARIANTS.items()}
        checks["signals"] = partial(signals, folder, sources)
        for title, check in checks.items():
            try:
                found = check()
            except AssertionError as error:
                found = f"WRONG: {error}"
            wrong = wrong or "WRONG" in found or "DIFFERENT" in found
            print(f"{title:<24} {found}", flush=True)
    table(began)
    print(f"{time.monotonic() - began:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
