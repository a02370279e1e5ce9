"""A kill storm: one run, hundreds of SIGKILLs of trainer and proxy, and an end that is that of a quiet run.

`python -m faults.storm --kills 300 --seed 7` (what `make storm` does) ends with 1 if anything differs. Every kill has
an instant: while the process starts, or as soon as the files show that it steps, saves, prunes, records, plans, plus a
moment drawn at random. No two of them in a row hit a start, so there is always progress.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from andrea_rundir import checkpoint, digests, inspection
from andrea_rundir.entries import read
from andrea_rundir.names import RunDir
from harness import Trainer, make_run, sidecar_diff, start, start_proxy, texts, twin_diff, until
from harness.twin import plan_in_force
from harness.waiting import last_step

CADENCE = 10
EARLY = 0.3
"""Which share of the processes that a kill made start again is killed once more while it starts."""
STARTERS: dict[str, Callable[..., Trainer]] = {"trainer": start, "proxy": start_proxy}
STARTING = {"trainer": 3.0, "proxy": 1.0}
"""Seconds within which a start is struck."""
MOMENTS = {"trainer": ("step", "save", "prune"), "proxy": ("record", "plan", "state")}
SETTINGS: dict[str, dict[str, Any]] = {
    "run": {"plan_wait": 3600.0},  # no round falls back
    "optimizer": {"max_steps": 1_000_000},
    "checkpoint": {"every": CADENCE, "keep_last": 2},
    "probe": {"every": 4 * CADENCE},
}


def finish(run: RunDir, proxy: Trainer, last: int) -> None:
    """To step `last`, left alone."""
    with start(run, "--until-step", str(last)) as trainer:
        assert trainer.wait(600) == 0, trainer.said()[-4000:]
    until("all is recorded", lambda: max((entry["step"] for entry in read(run.loss)), default=0) >= last, 600, 0.1)
    until("two rounds are planned", lambda: plan_in_force(run)[-1].plan.last >= last + 2 * CADENCE)
    assert proxy.stop() == 0, proxy.said()[-4000:]


@dataclass
class Storm:
    """Kills, one after another, while both processes are kept alive."""

    run: RunDir
    kills: int
    rng: np.random.Generator
    alive: dict[str, Trainer] = field(default_factory=dict)
    struck: Counter[str] = field(default_factory=Counter)
    """How often at which moment."""
    reached: list[int] = field(default_factory=list)
    """The newest step on record at each kill."""

    def rage(self) -> int:
        """The step at which the run was ended once the storm was over."""
        with ExitStack() as stack:
            for who in STARTERS:
                self._start(stack, who)
            until("the first step", lambda: last_step(self.run) > 0)
            who, moment = "trainer", "start"
            for _ in range(self.kills):
                who, moment = self._next(who, moment)
                self._await(who, moment)
                assert self.alive[who].process.poll() is None, f"{who}, before {moment}: {self.alive[who].said()}"
                self.alive[who].kill()
                self.struck[f"{who}: {moment}"] += 1
                self.reached.append(last_step(self.run))
                self._checkpoints_are_whole()
                self._start(stack, who)
            until("a step after the storm", lambda: last_step(self.run) > self.reached[-1])
            assert self.alive["trainer"].stop() == 0, self.alive["trainer"].said()
            last = (last_step(self.run) // CADENCE + 1) * CADENCE
            finish(self.run, self.alive["proxy"], last)
        return last

    def _next(self, who: str, moment: str) -> tuple[str, str]:
        """Whom to strike next, and when; never two starts in a row, so that the run goes on."""
        if moment != "start" and self.rng.random() < EARLY:
            return who, "start"
        who = ("trainer", "proxy")[self.rng.integers(2)]
        return who, MOMENTS[who][self.rng.integers(3)]

    def _start(self, stack: ExitStack, who: str) -> None:
        """Wait for nothing: the other one may be at work, or waiting for this one."""
        self.alive[who] = stack.enter_context(STARTERS[who](self.run))

    def _await(self, who: str, moment: str) -> None:
        """The moment, and then a little more of chance."""
        if moment == "start":
            return time.sleep(self.rng.uniform(0, STARTING[who]))
        happened = {
            "step": self._changes(lambda: last_step(self.run)),
            "save": lambda: any(self.run.root.glob(".step_*.tmp")),
            "prune": self._gone(),
            "record": self._changes(lambda: self._stamp(self.run.loss)),
            "plan": self._changes(lambda: self._stamp(self.run.plan)),
            "state": self._changes(lambda: self._stamp(self.run.state)),
        }[moment]
        until(f"{who}: {moment}", happened, pause=0.0005)
        return time.sleep(self.rng.choice([0, 0.001, 0.003, 0.01]))

    @staticmethod
    def _stamp(path: Path) -> tuple[int, int] | None:
        stat = path.stat() if path.exists() else None
        return (stat.st_ino, stat.st_mtime_ns) if stat is not None else None

    @staticmethod
    def _changes(look: Callable[[], object]) -> Callable[[], bool]:
        before = look()
        return lambda: look() != before

    def _gone(self) -> Callable[[], bool]:
        """Whether a checkpoint that was seen is there no more."""
        seen: set[int] = set()

        def look() -> bool:
            seen.update(now := self.run.checkpoints().keys())
            return bool(seen - now)

        return look

    def _checkpoints_are_whole(self) -> None:
        """What has its name is whole, and has its line."""
        for path in self.run.checkpoints().values():
            try:
                facts = inspection.inspect(path)
            except checkpoint.Invalid:
                assert not path.exists(), f"{path.name} is no checkpoint"
                continue  # pruned by the trainer, which lives
            assert facts.problem is None, f"{path.name}: {facts.problem}"
            line = digests.read(self.run.sums).get(path.name)
            assert line == facts.digest or not path.exists(), f"{path.name}: {line} != {facts.digest}"


def different(folder: Path, kills: int, seed: int, arms: dict[str, Path]) -> tuple[Storm, list[str]]:
    """A storm in a new folder, and how its end differs from that of a quiet run."""
    runs = {name: make_run(folder / name, changes=SETTINGS, arms=arms) for name in ("hurt", "whole")}
    storm = Storm(runs["hurt"], kills, np.random.default_rng(seed))
    last = storm.rage()
    with start_proxy(runs["whole"]) as proxy:
        finish(runs["whole"], proxy, last)
    found = twin_diff(runs["hurt"], runs["whole"], last, cadence=CADENCE) + sidecar_diff(runs["hurt"], runs["whole"])
    for who in STARTERS:
        if "Traceback" in storm.alive[who].said():
            found.append(f"a traceback: {storm.alive[who].said()}")
    if leftovers := [path.name for path in runs["hurt"].root.glob(".*.tmp")]:
        found.append(f"left over: {leftovers}")
    return storm, found


def main() -> int:
    parser = argparse.ArgumentParser(prog="storm", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="drawn where it is not given")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}, {args.kills} kills", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        storm, found = different(folder, args.kills, seed, texts(folder / "texts"))
    print(f"{dict(storm.struck)}; {time.monotonic() - began:.0f} s; {len(found)} differences")
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
