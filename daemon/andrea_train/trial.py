"""A few real steps of a run, on its pinned device, in a scratch directory: what `andrea check` builds its figures on.

Promises to run the very loop that trains, and to leave the run as it was: the scratch directory lies inside it, has
its configuration but a shorter cadence, its shards by a link, and is removed at the end. Writes nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from andrea_corpus.rounds import play
from andrea_rundir import config
from andrea_rundir.events import Tail, segments
from andrea_rundir.faults import NoDevice, Refused
from andrea_rundir.lock import probe
from andrea_rundir.names import RunDir
from andrea_rundir.plan import MAX_ROUND, RoundPlan
from andrea_service.held import held
from andrea_service.signals import Signals
from andrea_train import cuda, device
from andrea_train.answer import Request, answer
from andrea_train.start import train

LEAST_STEPS = 5
"""Steps that are made however long they take."""
WARM_UP = 3
"""Gaps between the first steps that are left out: memory is first touched there."""
POLL_SECONDS = 0.05

Events = list[dict[str, Any]]


def trial(request: Request) -> Mapping[str, Any]:
    """Measured figures of the run at `root` after about `seconds` of training; see `measure`."""
    run = RunDir(Path(request["root"]))
    settings = config.load(run.run_toml)
    facts = cuda.report()
    if settings.run.device.startswith("cuda") and not facts["usable"]:
        raise NoDevice(
            "this run is pinned to CUDA, and CUDA is not usable here",
            where=f"{run.run_toml}: run.device = {settings.run.device}",
            found=facts["why"],
            expected=f"a card; torch {facts['torch']}, driver: {facts['driver'] or 'none'}",
        )
    _clear(run)
    scratch = RunDir(run.root / f".check.{os.getpid()}.tmp")
    try:
        shortened = _prepare(run, scratch, settings)
        began = time.time()
        _train(scratch, request["seconds"])
        figures = measure(scratch.events, shortened, began)
    finally:
        shutil.rmtree(scratch.root, ignore_errors=True)
    return {**figures, **_memory(settings.run.device), "cuda": facts, "cpu": device.cpu_model()}


def short_cadence(every: int, round_steps: int) -> int:
    """The least cadence up to `every` that has at least two rounds of the same length as the run's."""
    for cadence in range(2 * round_steps, every, round_steps):
        if not any(cadence % longer == 0 for longer in range(round_steps + 1, MAX_ROUND + 1)):
            return cadence
    return every


def _clear(run: RunDir) -> None:
    """Remove what a trial left that was killed: nobody holds its lock."""
    for left in run.root.glob(".check.*.tmp"):
        if not probe(RunDir(left).train_lock).held:
            shutil.rmtree(left, ignore_errors=True)


def _prepare(run: RunDir, scratch: RunDir, settings: config.RunConfig) -> config.RunConfig:
    """The scratch directory; its configuration."""
    every = short_cadence(settings.checkpoint.every, settings.round_steps)
    shortened = settings.model_copy(
        update={
            "run": settings.run.model_copy(update={"plan_wait": 0.0}),
            "checkpoint": settings.checkpoint.model_copy(update={"every": every, "keep_every": 0}),
            "probe": settings.probe.model_copy(update={"every": 2 * every}),
            "samples": settings.samples.model_copy(update={"halt_after": 0}),
            "guard": settings.guard.model_copy(update={"regressed": "warn"}),
        }
    )
    scratch.root.mkdir(mode=0o750)
    scratch.run_toml.write_text(config.dump(shortened), encoding="utf-8")
    shutil.copyfile(run.policy_toml, scratch.policy_toml)
    scratch.data.symlink_to(run.data.absolute())
    return shortened


def _train(scratch: RunDir, seconds: float) -> None:
    """Train there for so long after the first step, at least LEAST_STEPS."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    signals = Signals()
    ended = threading.Event()

    def watch() -> None:
        tail, steps, first = Tail(scratch.events), 0, 0.0
        while not ended.wait(POLL_SECONDS):
            if scratch.events.is_dir():
                steps += sum(event.get("event") == "step" for event in tail.poll())
            if steps and not first:
                first = time.monotonic()
            if steps >= LEAST_STEPS and time.monotonic() - first >= seconds:
                signals.stop_wanted.set()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        with held(scratch, scratch.train_lock, scratch.train_pid) as settings:
            train(scratch, settings, signals, None)
    finally:
        ended.set()
        watcher.join()


def measure(folder: Path, shortened: config.RunConfig, began: float) -> dict[str, Any]:
    """From the trial's events: seconds of a step, of what comes on top of it at a round's start and at a checkpoint,
    of a probe, of a save beside the training, and of everything before the first step; bytes of an event by kind.
    """
    lines = [(json.loads(line), len(line)) for path in segments(folder) for line in path.read_bytes().splitlines(True)]
    sizes: dict[str, list[int]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    for event, length in lines:
        sizes[event["event"]].append(length)
        if event["event"] == "fallback":
            sizes["round"].append(length + _dealt(event, shortened.optimizer.batch_size))
        if event["event"] in ("audit", "probe", "checkpoint"):
            seconds[event["event"]].append(event["seconds"])
    steps = [event for event, _ in lines if event["event"] == "step"]
    if not steps:
        raise Refused(
            "no step could be trained",
            where=str(folder.parent.parent),
            found="the arms have fewer pulls than a batch needs",
            todo="raise their max_epochs, give them more text, or make batch_size smaller",
        )
    probes = {event["step"]: event["seconds"] for event, _ in lines if event["event"] == "probe"}
    times = [datetime.fromisoformat(event["time"]).timestamp() for event in steps]
    every, length = shortened.checkpoint.every, shortened.round_steps
    plain, rounds, edges = [], [], []
    for event, start, end in zip(steps, times, times[1:], strict=False):
        at, gap = event["step"], end - start
        if at % every == 0:
            edges.append(gap - probes.get(at, 0.0))
        elif at % length == 0:
            rounds.append(gap)
        else:
            plain.append(gap)
    plain = plain[WARM_UP:] if len(plain) > 2 * WARM_UP else plain
    step = fmean(plain or [event["seconds"] for event in steps])
    return {
        "steps": len(steps),
        "tokens": steps[0]["tokens"],
        "step_seconds": step,
        "round_seconds": max(0.0, fmean(rounds) - step) if rounds else 0.0,
        "edge_seconds": max(0.0, fmean(edges) - step) if edges else seconds["audit"][0],
        "probe_seconds": _settled(seconds["probe"]),
        "save_seconds": _settled(seconds["checkpoint"]),
        "start_seconds": max(0.0, times[0] - began - step),
        # A snapshot grows with the guard's windows until they are full.
        "event_bytes": {k: max(v) if k == "snapshot" else fmean(v) for k, v in sizes.items()},
    }


def _dealt(fallback: Mapping[str, Any], batch_size: int) -> int:
    """The bytes by which a round that has a plan is longer on record: its steps are dealt beforehand."""
    steps = [dealt.counts for dealt in play(RoundPlan.from_json(fallback), batch_size)]
    return len(json.dumps(steps, separators=(",", ":"))) - len("null")


def _settled(values: list[float]) -> float:
    """The mean without the first, which pays for first touches, where there are others; 0 for none."""
    return fmean(values[1:] or values) if values else 0.0


def _memory(name: str) -> dict[str, Any]:
    """Peak bytes of this process in memory, and on the card."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found: dict[str, Any] = {"memory": int(status.partition("VmHWM:")[2].split()[0]) * 1024}
    if name.startswith("cuda"):
        found["card_memory"] = torch.cuda.max_memory_reserved(name)
        found["card_total"] = torch.cuda.get_device_properties(name).total_memory
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the scratch directory goes
    sys.exit(answer(trial))
