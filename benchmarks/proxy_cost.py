"""What the proxy costs: an append to a long history, a round's decision, a restart, and its share of a core.

    python benchmarks/proxy_cost.py [--quick]

There is no other side to most of it: bounds are what an operator would mind. Growth is in entries and in arms.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pairs
from apart import apart, main, memory, scratch
from publish import ROUNDS

ENTRIES = (1_000, 200_000, 1_000_000)
HISTORIES = (1_000, 20_000, 200_000)
HISTORY = 200_000
BARS = {"from .state.json": 2.0, "folded anew": 15.0}
MEGABYTES = 100.0
ARMS = (4, 16, 64, 256)
BOUNDS = {16: 5.0, 256: 50.0}
"""Milliseconds a round's decision may take, by arms."""
BATCH, ROUND, CONTEXT = 8, 20, 1024
STEPS_A_SECOND = 50
WINDOW_SECONDS = 20


def entry(step: int, arms: list[str], policy: str = "0-0123456789ab") -> dict[str, Any]:
    """An entry as a run of batch 8 has it."""
    return {
        "step": step,
        "attempt": 1,
        "loss": 2.0 + 1 / (1 + step),
        "ema": 2.1234567890123456,
        "arms": {arm: [BATCH // len(arms), 2.3456789012345678, 4321] for arm in arms},
        "lr": 3e-4,
        "grad_norm": 0.987654321,
        "tokens": BATCH * CONTEXT,
        "seconds": 0.123456789,
        "policy": policy,
        "flags": [],
        "time": "2026-11-29T21:30:00.000Z",
    }


def appends(folder: str, *sizes: str) -> dict[str, float]:
    """Median seconds of one append, by number of entries before it; the sizes take turns."""
    from andrea_rundir.lossfile import LossFile

    arms, files = [f"source-{i:02d}" for i in range(BATCH)], {}
    for size in sizes:
        files[size] = LossFile(Path(folder) / f"{size}.json")
        for start in range(1, int(size), 1000):
            files[size].append([entry(step, arms) for step in range(start, start + 1000)])
    gc.disable()

    def one(size: str) -> float:
        new = [entry(files[size].last_step + 1, arms)]
        began = time.perf_counter()
        files[size].append(new)
        return time.perf_counter() - began

    taken = pairs.alternate({size: partial(one, size) for size in sizes}, 2000)
    return {size: median(seconds) for size, seconds in taken.items()}


def decision(count: str) -> list[float]:
    """Milliseconds, fifteen times, from a learner that has seen 500 steps to a round with every step dealt."""
    from andrea_corpus.rounds import Regime, Standing, lay_out
    from andrea_proxy import learners
    from andrea_proxy.learners import StepRecord
    from andrea_rundir.policy import Arm, Policy, dump, policy_id

    arms = int(count)
    names = [f"source-{i:03d}" for i in range(arms)]
    policy = Policy(arms={name: Arm(path=f"/{name}", floor=0.2 / arms) for name in names})
    text = dump(policy)
    prints = {name: f"{i:016x}" for i, name in enumerate(names)}
    regime = Regime(policy_id(text, 0), policy, text, prints, dict.fromkeys(names, 50_000))
    learner = learners.make("slope", 1337)
    for step in range(1, 501):
        pulled = [names[(step * BATCH + i) % arms] for i in range(BATCH)]
        seen = {name: (1, 2.0 + (1 + step + i) ** -0.3, 4000) for i, name in enumerate(pulled)}
        learner.observe(StepRecord(step, CONTEXT, seen, dict.fromkeys(seen, 0.1)))
    zero = dict.fromkeys(names, 0)
    here = Standing(500, regime.id, prints, zero, zero)
    taken = []
    for _ in range(15):
        began = time.perf_counter()
        weights = learner.weights(names, dict.fromkeys(names, 1.0), dict.fromkeys(names, 0.1))
        laid = lay_out(regime, here, 25, 500 + ROUND, weights=weights, batch_size=BATCH)
        taken.append(1e3 * (time.perf_counter() - began))
        assert laid is not None
    return taken


def history(folder: str, entries: str) -> int:
    """A run of so many steps without a proxy (a dry trainer: real feed, real events, invented losses), which a proxy
    then catches up with; made in memory, where syncing costs nothing. Bytes of its `.loss.json`."""
    from andrea_rundir.names import RunDir
    from harness import make_run, texts
    from harness.dry import DryTrainer, desk

    last = int(entries)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        changes = {"optimizer": {"max_steps": 10 * last, "batch_size": BATCH}, "checkpoint": {"every": 10_000}}
        changes["probe"] = {"every": 10_000}
        run = make_run(Path(name) / "run", changes=changes, arms=texts(Path(name) / "texts"))
        assert DryTrainer(run, lambda: False).train(last)
        proxy = desk(run)
        proxy.turn()
        proxy.close()
        shutil.copytree(run.root, Path(folder) / "run")
    return RunDir(Path(folder) / "run").loss.stat().st_size


def restart(folder: str, began: str, how: str) -> dict[str, float]:
    """Seconds from exec until the proxy has caught up and planned, and its peak memory in MB. `how` is from
    .state.json, or folded anew: without one every entry is folded and every event looked at."""
    from andrea_proxy.desk import Desk
    from andrea_rundir import config
    from andrea_rundir.names import RunDir

    run = RunDir(Path(folder) / "run")
    if how == "folded anew":
        run.state.unlink()
    desk = Desk(run, config.load(run.run_toml), logging.getLogger("benchmark"))
    desk.turn()
    seconds = time.monotonic() - float(began)
    desk.close()
    return {"seconds": seconds, "megabytes": memory("VmHWM") / 1e6, "step": desk.fold.step}


def beside(folder: str) -> dict[str, float]:
    """The share of one core that a real proxy takes beside a trainer of 50 steps a second, in per cent.

    The trainer is a dry one, paced by the clock: real feed, real events, invented losses.
    """
    from harness import make_run, start_proxy, texts
    from harness.dry import DryTrainer

    changes = {"optimizer": {"max_steps": 10_000_000, "batch_size": BATCH}, "checkpoint": {"every": 100}}
    changes["probe"] = {"every": 1000}
    run = make_run(Path(folder) / "run", changes=changes, arms=texts(Path(folder) / "texts", words=40_000))
    with start_proxy(run) as proxy:

        def used() -> float:
            fields = Path(f"/proc/{proxy.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def patience() -> bool:
            time.sleep(0.01)
            return True

        trainer, began = DryTrainer(run, patience, 1 / STEPS_A_SECOND), time.monotonic()
        marks = []
        for step in range(1, (5 + WINDOW_SECONDS) * STEPS_A_SECOND):
            trainer.train(step)
            if step % (5 * STEPS_A_SECOND) == 0:
                marks.append((time.monotonic(), used()))
            time.sleep(max(0.0, began + step / STEPS_A_SECOND - time.monotonic()))
        assert proxy.stop() == 0, proxy.said()
    (first, before), (last, after) = marks[0], marks[-1]
    pace = (len(marks) - 1) * 5 * STEPS_A_SECOND / (last - first)
    return {"share": 100 * (after - before) / (last - first), "pace": pace}


def rows(quick: bool) -> Iterator[pairs.Row]:
    sizes = ENTRIES[:1] if quick else ENTRIES
    with scratch() as folder:
        found = apart(__file__, "appends", folder, *sizes)
        for size in sizes:
            bar = 1.2 if size == HISTORY else None
            one, few = [found[str(size)]], [found[str(sizes[0])]]
            yield pairs.costs("append to .loss.json", f"{size:,} entries", f"at {sizes[0]:,}", one, few, bar)
    for arms in ARMS[:1] if quick else ARMS:
        taken = apart(__file__, "decision", arms)
        yield pairs.figure("one round decided and dealt", f"{arms} arms", taken, " ms", at_most=BOUNDS.get(arms))
    for entries in HISTORIES[:1] if quick else HISTORIES:
        length, asked = f"{entries:,} entries", entries == HISTORY
        with scratch() as folder:
            apart(__file__, "history", folder, entries)
            sides = {how: partial(_restart, folder, how) for how in BARS}
            for how, found in pairs.alternate(sides, ROUNDS).items():
                assert all(one["step"] == entries for one in found), found
                taken = [one["seconds"] for one in found]
                yield pairs.figure(f"proxy's restart, {how}", length, taken, " s", at_most=BARS[how] if asked else None)
                peak = [one["megabytes"] for one in found]
                yield pairs.figure(f"proxy's memory, {how}", length, peak, " MB", at_most=MEGABYTES if asked else None)
    with scratch() as folder:
        share = apart(__file__, "beside", folder)
    pace = f"{share['pace']:.0f} steps/s"
    yield pairs.figure("proxy beside a trainer", pace, [share["share"]], " % of a core", at_most=5.0)


def _restart(folder: str, how: str) -> dict[str, float]:
    return apart(__file__, "restart", folder, time.monotonic(), how)  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(
        main({"appends": appends, "decision": decision, "history": history, "restart": restart, "beside": beside}, rows)
    )
