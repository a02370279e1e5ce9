"""A real trainer in this process, with the times at which its parts began and ended.

What the loop itself calls is wrapped before it starts; nothing else differs from `andrea-train`. Times are seconds of
CLOCK_MONOTONIC, the same for all processes of a machine.
"""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from andrea_rundir.names import RunDir

Stamps = dict[str, list[tuple[float, float]]]
"""For each part the begin and end of every call."""


def clock(
    stamps: Stamps,
    owner: Any,
    name: str,
    *,
    title: str = "",
    now: Callable[[], float] = time.monotonic,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Stamp every call of `owner.name`; `after` is called at the end of each."""
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = now()
        found = inner(*args, **kwargs)
        stamps[title or name].append((began, now()))
        after()
        return found

    setattr(owner, name, timed)


def make(folder: Path, preset: str, *, steps: int, changes: Mapping[str, Mapping[str, Any]] | None = None) -> RunDir:
    """A run of a preset on all cores, everything else as it comes but for `changes`, on a megabyte of text."""
    from andrea_corpus.prepare import prepare
    from andrea_corpus.tokenizer import ByteTokenizer
    from andrea_rundir import config, policy
    from harness import texts

    run, changes = RunDir(folder / "run"), changes or {}
    run.root.mkdir()
    tables: dict[str, dict[str, Any]] = {
        "run": {"id": "0" * 32, "device": "cpu", "precision": "fp32", "plan_wait": 0.0},
        "model": {"preset": preset},
        "optimizer": {"max_steps": steps, "warmup_steps": min(10, steps)},
    }
    settings = config.build(
        {name: {**tables.get(name, {}), **changes.get(name, {})} for name in {*tables, *changes}}, ""
    )
    run.run_toml.write_text(config.dump(settings), encoding="utf-8")
    arms = texts(folder / "texts", words=160_000)
    run.policy_toml.write_text("".join(f'[arms.{name}]\npath = "{path}"\n' for name, path in arms.items()))
    rules, context = policy.load(run.policy_toml), settings.shape.context
    prepare(run, rules, ByteTokenizer(), held_out=settings.probe.held_out, context=context)
    return run


def train(run: RunDir, until: int | None) -> Stamps:
    """Train `run` in this process; when its steps, snapshots, audits and probes were. Ends as `andrea-train` would."""
    import os

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    from andrea_rundir import config
    from andrea_service.signals import Signals
    from andrea_train import looks, loop, saver, start

    stamps: Stamps = defaultdict(list)
    clock(stamps, loop.Loop, "_step", title="processor", now=time.process_time)
    clock(stamps, loop.Loop, "_step", title="step")
    clock(stamps, saver.Saver, "submit", title="snapshot")
    clock(stamps, looks.Looks, "sample", title="audit")
    clock(stamps, looks.Looks, "measure", title="probe")
    code = start.train(run, config.load(run.run_toml), Signals(), until)
    assert code == 0, code
    return stamps


def gaps(stamps: Stamps) -> list[float]:
    """Seconds from the begin of each step but the last to the next one's, without audits and probes."""
    begins = [began for began, _ in stamps["step"]]
    looking = stamps["audit"] + stamps["probe"]
    return [end - begin - sum(b - a for a, b in looking if begin <= a < end) for begin, end in pairwise(begins)]


def spent(stamps: Stamps, part: str) -> float:
    """Median seconds of one call of a part; 0 if there was none."""
    return median([end - began for began, end in stamps[part]] or [0.0])
