"""How soon a stopped run trains again: a cold checkpoint read and verified, and the whole way to the first step.

    python benchmarks/resume_speed.py [--quick]

A load is held against the slower of its two physical limits, reading the bare bytes and SHA-256 of them, and against
`torch.load` + `load_state_dict`, which check nothing. Every read is cold: the file is dropped from the page cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pairs
from apart import apart, evict, main, scratch
from publish import PIECE, ROUNDS, shape_of, touched

from andrea_rundir.names import RunDir
from andrea_rundir.publish import BLOCK

SIZES = ("andrea-tiny", "andrea-12m", "andrea-120m")
PHASES = ("interpreter and imports", "lock, device", "state", "checkpoint", "staging and rest", "first step")


def write(folder: str, name: str) -> float:
    """A run with a checkpoint at step 1, and the same state as a user of torch saves it; seconds."""
    import plain
    import torch
    from stamped import make

    from andrea_rundir import digests
    from andrea_rundir.publish import publish_image
    from andrea_train.state import Staging, State

    began, shape = time.monotonic(), shape_of(name)
    changes = {"optimizer": {"batch_size": 1}, "samples": {"tokens": 1}}
    run = make(Path(folder), name, steps=1000, changes=changes)
    state, staging = State(shape, torch.device("cpu")), Staging(shape.n_params, torch.device("cpu"))
    model, adam = plain.filled(shape)
    state.step, start = 1, 0
    for p in model.parameters():
        part = slice(start, start := start + p.numel())
        state.w[part] = p.detach().flatten()
        state.m[part], state.v[part] = adam.state[p]["exp_avg"].flatten(), adam.state[p]["exp_avg_sq"].flatten()
    staging.snapshot(state)
    publish_image(run.checkpoint(1), staging.image, sealed=lambda: None)
    digests.record(run.sums, run.checkpoint(1).name, hashlib.sha256(staging.image).hexdigest())
    with (Path(folder) / "state.pt").open("wb") as file:
        torch.save(plain.contents(model, adam), file)
        os.fsync(file.fileno())
    return time.monotonic() - began


def cold(folder: str, name: str) -> dict[str, list[float]]:
    """Seconds of reading the bare file, of SHA-256 of its bytes, and of our load into a state that is there already."""
    import torch

    from andrea_rundir import loading
    from andrea_train.state import State

    shape, path = shape_of(name), RunDir(Path(folder) / "run").checkpoint(1)
    size = path.stat().st_size
    buffer = memoryview(touched(size + BLOCK))
    image = buffer[:size]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    state = State(shape, torch.device("cpu"))

    def raw() -> float:
        evict(path)
        began, done = time.perf_counter(), 0
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        while done < size:  # the last read ends where the file does
            done += os.preadv(fd, [buffer[done : done + min(PIECE, -(-(size - done) // BLOCK) * BLOCK)]], done)
        os.close(fd)
        return time.perf_counter() - began

    def sha() -> float:
        began = time.perf_counter()
        hashlib.sha256(image).hexdigest()
        return time.perf_counter() - began

    def load() -> float:
        evict(path)
        began = time.perf_counter()
        loading.load(path, state.fill, step=1, n_params=shape.n_params, digest=digest)
        return time.perf_counter() - began

    return pairs.alternate({"raw": raw, "sha": sha, "load": load}, ROUNDS)


def ours(folder: str, name: str) -> float:
    """Seconds from a state that exists to one that holds the file, digest, finiteness and all checked."""
    import torch

    from andrea_rundir import loading
    from andrea_train.state import State

    run, shape = RunDir(Path(folder) / "run"), shape_of(name)
    state = State(shape, torch.device("cpu"))
    evict(run.checkpoint(1))
    began = time.perf_counter()
    assert loading.choose(run, state.fill, n_params=shape.n_params) is not None
    return time.perf_counter() - began


def torch_load(folder: str, name: str) -> float:
    """Seconds from a model and an optimizer that exist to ones that hold the file; nothing is checked."""
    import plain
    import torch

    path = Path(folder) / "state.pt"
    model = plain.Plain(shape_of(name))
    adam = plain.optimizer(model)
    evict(path)
    began = time.perf_counter()
    content = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(content["model"])
    adam.load_state_dict(content["optimizer"])
    return time.perf_counter() - began


def phases(folder: str, began: str) -> dict[str, float]:
    """Seconds of each phase of a real start, from exec to the end of the first step."""
    from stamped import Stamps, clock

    from andrea_rundir import config, loading
    from andrea_service.signals import Signals
    from andrea_train import device, loop, start

    imported = time.monotonic()
    stamps: Stamps = {part: [] for part in ("assemble", "choose", "step")}

    def stop() -> None:
        at = [float(began), imported]
        (built, loaded), (_, ready) = stamps["choose"][0], stamps["assemble"][0]
        at += [stamps["begin"][0][0], built, loaded, ready, stamps["step"][0][1]]
        ends = dict(zip(PHASES, (b - a for a, b in pairwise(at)), strict=True))
        print(json.dumps(ends), flush=True)
        os._exit(0)  # nothing has been saved since: the run is as it was

    stamps["begin"] = []
    clock(stamps, device, "settle", title="begin")
    clock(stamps, loading, "choose")
    clock(stamps, start, "_assemble", title="assemble")
    clock(stamps, loop.Loop, "_step", title="step", after=stop)
    run = RunDir(Path(folder) / "run")
    start.train(run, config.load(run.run_toml), Signals(), None)
    raise AssertionError("no step was taken")


def start_cold(folder: str) -> dict[str, float]:
    """One start with everything of the run out of the page cache."""
    for path in (Path(folder) / "run").rglob("*.bin"):
        evict(path)
    return apart(__file__, "phases", folder, time.monotonic())  # type: ignore[no-any-return]


def rows(quick: bool) -> Iterator[pairs.Row]:
    for name in SIZES[:1] if quick else SIZES:
        size, asked = f"{shape_of(name).n_params / 1e6:.1f}M", name == "andrea-120m"
        with scratch() as folder:
            apart(__file__, "write", folder, name)
            limits = apart(__file__, "cold", folder, name)
            slower = list(map(max, limits["raw"], limits["sha"]))
            bar = 1.15 if asked else None
            yield pairs.costs("cold load, verified", size, "slower of read, SHA-256", limits["load"], slower, bar)
            yield pairs.costs("cold load, verified", size, "raw O_DIRECT read", limits["load"], limits["raw"])
            sides = {"ours": partial(apart, __file__, "ours", folder, name)}
            sides["torch"] = partial(apart, __file__, "torch_load", folder, name)
            found = pairs.alternate(sides, ROUNDS)
            bar = 1.4 if asked else None
            yield pairs.faster("cold restore", size, "torch.load, unchecked", found["ours"], found["torch"], bar)
            starts: list[dict[str, Any]] = [start_cold(folder) for _ in range(ROUNDS)]
            whole = [sum(start.values()) for start in starts]
            yield pairs.figure("exec to the end of the first step", size, whole, " s")
            for phase in PHASES:
                yield pairs.figure(f"of which {phase}", size, [start[phase] for start in starts], " s")


if __name__ == "__main__":
    sys.exit(main({"write": write, "cold": cold, "ours": ours, "torch_load": torch_load, "phases": phases}, rows))
