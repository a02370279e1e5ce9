"""Tokens a second of the real trainer beside a plain PyTorch loop of the same shape on the same text.

    python benchmarks/step.py [--quick]
    python benchmarks/step.py --only profile andrea-tiny fp32     # where the time of a step goes

Our side is `andrea-train` with everything at its default cadence: events, guard, console, saving, audits, probe. A
plain step is its median step; what comes on top every 100 and 1000 steps is measured in the same run and shared out.
The plain loop reads the same windows through a DataLoader and saves nothing. Both begin with the same weights, and
their first losses are compared. Processor time a step is shown beside wall time: it hardly hears of other loads.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

import pairs
from apart import apart, main, scratch
from publish import ROUNDS, shape_of

BATCH = 8
WARM_UP = {"andrea-tiny": 5, "andrea-12m": 1}
STEPS = {"andrea-tiny": 30, "andrea-12m": 3}
UPDATES = {"andrea-tiny": 40, "andrea-12m": 20, "andrea-120m": 8}
PROBED, SAVED = 1000, 100
"""The default cadences, in steps."""
TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}
"""Of the first losses of both sides, in nats."""


def make(folder: str, name: str, precision: str) -> float:
    """The run of our side, and beside it the very batches it will see, for the other; seconds."""
    import numpy as np
    from stamped import make

    from andrea_rundir.names import RunDir
    from harness.dry import DryTrainer

    began, steps = time.monotonic(), WARM_UP[name] + STEPS[name]
    run = make(Path(folder), name, steps=steps + 1, changes={"run": {"precision": precision}})
    twin = RunDir(Path(folder) / "twin")
    shutil.copytree(run.root, twin.root)
    feed = DryTrainer(twin, lambda: False).feed
    np.save(Path(folder) / "batches.npy", np.concatenate([feed.batch(i).windows for i in range(1, steps + 1)]))
    return time.monotonic() - began


def ours(folder: str, name: str) -> dict[str, float]:
    """A real run from its beginning: seconds of a plain `step` (and of processor, `cpu`), of one `snapshot`, of one
    `audit` and one `probe` (all at step 0), and the `loss` of the first step."""
    from stamped import gaps, spent, train

    from andrea_rundir.events import read
    from andrea_rundir.names import RunDir

    run = RunDir(Path(folder) / f"run-{time.monotonic_ns()}")
    shutil.copytree(Path(folder) / "run", run.root)
    stamps = train(run, None)
    found = {part: spent(stamps, part) for part in ("snapshot", "audit", "probe")}
    loss = next(event["loss"] for event in read(run.events) if event["event"] == "step")
    shutil.rmtree(run.root)
    cpu = median([b - a for a, b in stamps["processor"]][WARM_UP[name] :])
    return {"step": median(gaps(stamps)[WARM_UP[name] :]), "cpu": cpu, "loss": loss, **found}


def plain_loop(folder: str, name: str, precision: str) -> dict[str, float]:
    """Seconds of a plain loop's `step`, and the `loss` of its first one."""
    import numpy as np
    import plain
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from andrea_corpus.order import stream_seed
    from andrea_rundir import config
    from andrea_rundir.names import RunDir
    from andrea_train import device as devices
    from andrea_train import model as trainers

    settings, shape = config.load(RunDir(Path(folder) / "run").run_toml), shape_of(name)
    torch.set_num_threads(settings.run.threads or len(os.sched_getaffinity(0)))
    model = plain.Plain(shape)
    model.load(trainers.initial(shape, stream_seed(settings.run.seed, "weights", 0)), shape)
    adam = plain.optimizer(model)
    windows = torch.from_numpy(np.load(Path(folder) / "batches.npy"))
    stamps, used, first = [time.perf_counter()], [time.process_time()], None
    for (batch,) in DataLoader(TensorDataset(windows), batch_size=BATCH):
        with devices.autocast(torch.device("cpu"), precision):
            loss = model(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        first = loss.item() if first is None else first
        stamps.append(time.perf_counter())
        used.append(time.process_time())
    assert first is not None
    step, cpu = (median([b - a for a, b in pairwise(at)][WARM_UP[name] :]) for at in (stamps, used))
    return {"step": step, "cpu": cpu, "loss": first}


def update(name: str) -> dict[str, list[float]]:
    """Seconds of clipping and AdamW alone, ours on flat vectors and per parameter, from equal state and gradient."""
    import plain
    import torch

    from andrea_rundir.sections import OptimizerConfig
    from andrea_train.model import weights
    from andrea_train.optimizer import AdamW
    from andrea_train.state import State

    shape = shape_of(name)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    state = State(shape, torch.device("cpu"))
    state.w.normal_(0.0, 0.02, generator=torch.Generator().manual_seed(1))
    flat = torch.randn(shape.n_params, generator=torch.Generator().manual_seed(2))
    model = plain.Plain(shape)
    model.load(state.w, shape)
    mine, adam = AdamW(state, shape, OptimizerConfig()), plain.optimizer(model)
    views = weights(flat, shape).tensors()
    losses = torch.ones(BATCH)

    def ours() -> float:
        mine.gradient.copy_(flat)
        began = time.perf_counter()
        mine.step(3e-4, losses)
        return time.perf_counter() - began

    def theirs() -> float:
        for p, g in zip(model.in_file_order(), views, strict=True):
            p.grad = g.clone()
        began = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        return time.perf_counter() - began

    found = pairs.alternate({"ours": ours, "theirs": theirs}, UPDATES[name])
    for p, w in zip(model.in_file_order(), weights(state.w, shape).tensors(), strict=True):
        torch.testing.assert_close(p.detach(), w, rtol=1e-4, atol=1e-6)
    return {side: taken[2:] for side, taken in found.items()}


def profile(name: str, precision: str) -> list[str]:
    """The operations that take most of a step's time, each with its share of it."""
    import torch

    from andrea_rundir.sections import OptimizerConfig
    from andrea_train import model
    from andrea_train.feed import Batch
    from andrea_train.optimizer import AdamW
    from andrea_train.state import State
    from andrea_train.stepper import Stepper

    shape, device = shape_of(name), torch.device("cpu")
    state = State(shape, device)
    state.w.copy_(model.initial(shape, 1))
    mine = AdamW(state, shape, OptimizerConfig())
    stepper = Stepper(device, precision, state, mine, model.losses, micro_batch=BATCH, loss_scale=1.0)
    windows = torch.randint(shape.vocab_size, (BATCH, shape.context + 1)).numpy()

    def step() -> None:
        stepper.take(Batch(windows, {"a": BATCH}), 3e-4, lambda: None, None, lambda: None)

    for _ in range(WARM_UP[name]):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            step()
    events = sorted(profiler.key_averages(), key=lambda e: -e.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return [f"{100 * e.self_cpu_time_total / total:.1f} % {e.key} ({e.count // 2} a step)" for e in events[:14]]


def rows(quick: bool) -> Iterator[pairs.Row]:
    kinds = [("andrea-tiny", "fp32"), ("andrea-tiny", "bf16"), ("andrea-12m", "fp32"), ("andrea-12m", "bf16")]
    for name, precision in kinds[:1] if quick else kinds:
        size = f"{shape_of(name).n_params / 1e6:.1f}M, {precision}"
        if (name, precision) == ("andrea-12m", "bf16") and not _multiplies_bf16():
            yield pairs.missing("step", size, "minutes a step, this processor has no bf16 arithmetic")
            continue
        with scratch() as folder:
            apart(__file__, "make", folder, name, precision)
            sides = {"ours": partial(apart, __file__, "ours", folder, name)}
            sides["plain"] = partial(apart, __file__, "plain_loop", folder, name, precision)
            found = pairs.alternate(sides, ROUNDS)
        for a, b in zip(found["ours"], found["plain"], strict=True):
            assert abs(a["loss"] - b["loss"]) < TOLERANCE[precision], (a, b)
        theirs = [one["step"] for one in found["plain"]]
        yield pairs.faster("step", size, "plain loop", [one["step"] for one in found["ours"]], theirs, 1.0)
        mine, other = ([one["cpu"] for one in found[side]] for side in ("ours", "plain"))
        yield pairs.faster("step, processor time", size, "plain loop", mine, other)
        looks = {"audit": name == "andrea-12m"}
        whole = [_whole(one, **looks) for one in found["ours"]]
        title = "step, all on" if looks["audit"] else "step, all on, audit apart"
        yield pairs.faster(title, size, "plain loop, nothing on", whole, theirs, 0.97)
        share = [100 * one["audit"] / (SAVED * one["step"]) for one in found["ours"]]
        yield pairs.figure(f"one audit, of {SAVED} steps", size, share, " %")
    for name in ["andrea-tiny"] if quick else UPDATES:
        taken = apart(__file__, "update", name)
        size, bar = f"{shape_of(name).n_params / 1e6:.1f}M", 1.2 if name == "andrea-tiny" else None
        yield pairs.faster("clip and AdamW", size, "per parameter, fused", taken["ours"], taken["theirs"], bar)


def _multiplies_bf16() -> bool:
    """Whether the processor has instructions for it (x86 and ARM); else each product takes many."""
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


def _whole(found: dict[str, float], *, audit: bool) -> float:
    """A step with its share of what comes on top at the default cadences."""
    return found["step"] + (found["snapshot"] + audit * found["audit"]) / SAVED + found["probe"] / PROBED


if __name__ == "__main__":
    sys.exit(main({"make": make, "ours": ours, "plain_loop": plain_loop, "update": update, "profile": profile}, rows))
