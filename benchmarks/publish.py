"""How long until a checkpoint survives a power cut: ours beside the bare disk, `torch.save` and torch DCP.

    python benchmarks/publish.py [--quick]

Every side writes the same 12 bytes a parameter to the same folder and syncs file and folder. The clock starts after the
snapshot where a side takes one (ours, and DCP async, whose copying counts as block, in `stall.py`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pairs
from apart import apart, forget_peak, main, memory, scratch

from andrea_rundir.layout import PRESETS, Shape
from andrea_rundir.publish import BLOCK, fsync_dir, image_buffer, publish_image

ROUNDS = 3
REPEATS = {"andrea-tiny": 9, "andrea-12m": 5, "andrea-120m": 1}
PIECE = 16 << 20


def shape_of(name: str) -> Shape:
    return PRESETS[name]


def touched(size: int) -> Any:
    """A page-aligned buffer of some bytes other than zero."""
    import numpy as np

    image = image_buffer(size)
    np.frombuffer(image, dtype=np.uint8)[:] = 65
    return image


def raw(folder: str, name: str) -> float:
    """The bare disk: O_DIRECT, sequential, one fsync of the file and one of its folder."""
    from andrea_rundir.checkpoint import file_size

    image = memoryview(touched(-(-file_size(shape_of(name).n_params) // BLOCK) * BLOCK))
    path, taken = Path(folder) / "raw", []
    for _ in range(REPEATS[name]):
        began = time.perf_counter()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT)
        written = 0
        while written < len(image):
            written += os.write(fd, image[written : written + PIECE])
        os.fsync(fd)
        os.close(fd)
        fsync_dir(path.parent)
        taken.append(time.perf_counter() - began)
        path.unlink()
    return median(taken)


def bare(folder: str, name: str) -> float:
    """Our writing alone, without the digest."""
    from andrea_rundir.checkpoint import file_size

    size = file_size(shape_of(name).n_params)
    image, path, taken = memoryview(touched(size))[:size], Path(folder) / "bare", []
    for _ in range(REPEATS[name]):
        began = time.perf_counter()
        publish_image(path, image, sealed=lambda: None)
        taken.append(time.perf_counter() - began)
        path.unlink()
    return median(taken)


def ours(folder: str, name: str) -> dict[str, Any]:
    """The trainer's own saver: events, digest, values looked at, digest line, rename, prune.

    `durable`: seconds after the snapshot; `block`: of the snapshot; `copy`: of copying 12 bytes a parameter beforehand,
    into memory that is there already; `memory`: peak beyond the state, in checkpoints.
    """
    import torch

    from andrea_rundir.eventlog import EventLog
    from andrea_rundir.names import RunDir
    from andrea_rundir.sections import CheckpointConfig
    from andrea_train.saver import Keep, Saver
    from andrea_train.state import Staging, State

    shape, run = shape_of(name), RunDir(Path(folder) / f"ours-{os.getpid()}")
    run.root.mkdir()
    state = State(shape, torch.device("cpu"))
    for part in (state.w, state.m, state.v):
        part.fill_(0.25)
    forget_peak()
    before = memory("VmRSS")
    staging = Staging(shape.n_params, torch.device("cpu"))
    saver = Saver(run, staging, EventLog(run.events), CheckpointConfig(every=1, keep_last=2))
    times: dict[str, list[float]] = {"copy": [], "block": [], "durable": []}
    for step in range(1, REPEATS[name] + 1):
        state.step = step
        began = time.perf_counter()
        for mine, theirs in ((staging.w, state.w), (staging.m, state.m), (staging.v, state.v)):
            mine.copy_(theirs)
        copied = time.perf_counter()
        saver.submit(state, "cadence", Keep())
        submitted = time.perf_counter()
        saved = saver.settle(lambda: None)
        settled = time.perf_counter()
        assert saved is not None and saved.digest, saved
        for key, seconds in zip(times, (copied - began, submitted - copied, settled - submitted), strict=True):
            times[key].append(seconds)
    peak = memory("VmHWM") - before
    saver.close()
    _remove(run.root)
    return {**{key: median(taken) for key, taken in times.items()}, "memory": peak / len(staging.image)}


def torch_save(folder: str, name: str) -> dict[str, Any]:
    """`torch.save` to a file object that is then synced, and its folder with it."""
    import plain
    import torch

    content = plain.contents(*plain.filled(shape_of(name)))
    forget_peak()
    before, path, taken = memory("VmRSS"), Path(folder) / "torch.pt", []
    for _ in range(REPEATS[name]):
        began = time.perf_counter()
        with path.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        plain.durable(path)
        taken.append(time.perf_counter() - began)
        path.unlink()
    return {"durable": median(taken), "memory": (memory("VmHWM") - before) / (12 * shape_of(name).n_params)}


def dcp(folder: str, name: str, how: str) -> dict[str, Any]:
    """torch.distributed.checkpoint in a single process: `how` is sync, async (as it comes) or kept (its stager, and
    with it its memory, kept from save to save, as its documentation advises)."""
    import plain
    from torch.distributed.checkpoint import state_dict_saver
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    content = plain.contents(*plain.filled(shape_of(name)))
    content.pop("step")
    tiny = {"a": content["model"]["head.weight"][:1].clone()}
    stager = DefaultStager(StagingOptions(False, False, False, False)) if how == "kept" else None

    def save(what: dict[str, Any], path: Path) -> tuple[float, float]:
        """Seconds until the caller may go on, and until all is durable."""
        began = time.perf_counter()
        if how == "sync":
            state_dict_saver.save(what, checkpoint_id=path, no_dist=True)
            blocked = time.perf_counter()
        else:
            future: Any = state_dict_saver.async_save(what, checkpoint_id=path, no_dist=True, async_stager=stager)
            blocked = time.perf_counter()
            future.result()
        plain.durable(path)
        return blocked - began, time.perf_counter() - began

    save(tiny, Path(folder) / "first")
    _remove(Path(folder) / "first")
    if stager is not None:
        stager.stage(content)  # its memory is there from now on
    forget_peak()
    before, taken = memory("VmRSS"), []
    for i in range(REPEATS[name]):
        path = Path(folder) / f"dcp-{i}"
        taken.append(save(content, path))
        _remove(path)
    if stager is not None:
        stager.close()
    peak = (memory("VmHWM") - before) / (12 * shape_of(name).n_params)
    return {"block": median(b for b, _ in taken), "durable": median(d for _, d in taken), "memory": peak}


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder)


def sides(folder: str, name: str) -> dict[str, Any]:
    """All sides at one size, by name, ready to be alternated."""
    measure = partial(apart, __file__)
    return {
        "raw": partial(measure, "raw", folder, name),
        "bare": partial(measure, "bare", folder, name),
        "ours": partial(measure, "ours", folder, name),
        "torch.save": partial(measure, "torch_save", folder, name),
        "sync": partial(measure, "dcp", folder, name, "sync"),
        "async": partial(measure, "dcp", folder, name, "async"),
    }


def rows(quick: bool) -> Iterator[pairs.Row]:
    for name in ["andrea-tiny"] if quick else list(REPEATS):
        with scratch() as folder:
            found = pairs.alternate(sides(folder, name), ROUNDS)
        size, asked = f"{shape_of(name).n_params / 1e6:.1f}M", name == "andrea-120m"
        mine = [one["durable"] for one in found["ours"]]
        yield pairs.faster(
            "durable, no digest", size, "raw O_DIRECT", found["bare"], found["raw"], 0.85 if asked else None
        )
        yield pairs.faster("durable, digest and all", size, "raw O_DIRECT", mine, found["raw"])
        for side, title, bar in (
            ("torch.save", "torch.save + fsync", 1.8),
            ("sync", "DCP save", 1.3),
            ("async", "DCP async_save, to durable", 1.3),
        ):
            theirs = [one["durable"] for one in found[side]]
            yield pairs.faster("durable, digest and all", size, title, mine, theirs, bar if asked else None)
        for side, title in (("ours", "ours"), ("torch.save", "torch.save"), ("sync", "DCP"), ("async", "DCP async")):
            extra = [one["memory"] for one in found[side]]
            most = 1.05 if asked and side == "ours" else None
            yield pairs.figure(f"peak memory beyond the state, {title}", size, extra, " files", at_most=most)


if __name__ == "__main__":
    sys.exit(main({"raw": raw, "bare": bare, "ours": ours, "torch_save": torch_save, "dcp": dcp}, rows))
