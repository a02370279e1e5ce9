"""A soak: one run of very many tiny steps, meanwhile pivots, forks, restarts and kills; memory and descriptors stay as
they were, and history is whole at the end.

`python -m faults.soak --steps 100000` (what `make soak` does) ends with 1 if anything is not so. A process's life is
looked at from its thousandth step on, when what is made once has been made.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from andrea_cli.main import main as andrea
from andrea_rundir.entries import read
from andrea_rundir.names import RunDir
from harness import Trainer, make_run, start, start_proxy, texts, until
from harness.waiting import last_step

CADENCE = 100
ACTS = 25
"""How often something is done to the run, at equal distances."""
WARM = 1000
LEAST = 3000
"""Steps of a life that is judged."""
GROWTH = {"trainer": 4 << 20, "proxy": 8 << 20}
"""Bytes that a process may hold more at the end of a life: a proxy keeps the place of every entry, 16 bytes a step."""
MORE_DESCRIPTORS = 2
"""Two looks may meet different moments of a save."""
SETTINGS: dict[str, dict[str, Any]] = {
    "run": {"plan_wait": 60.0},
    "model": {"vocab_size": 257, "d_model": 16, "n_heads": 1, "n_layers": 1, "context": 16},
    "optimizer": {"batch_size": 2},
    "checkpoint": {"every": CADENCE},
    "probe": {"every": 10 * CADENCE},
    "samples": {"tokens": 4},
}
STARTERS: dict[str, Callable[..., Trainer]] = {"trainer": start, "proxy": start_proxy}


@dataclass
class Life:
    """What a process held, look by look: the run's step, bytes of memory, descriptors."""

    who: str
    process: Trainer
    begun: int
    looks: list[tuple[int, int, int]] = field(default_factory=list)

    def look(self, step: int) -> None:
        folder = Path(f"/proc/{self.process.pid}")
        with contextlib.suppress(OSError):  # it has just ended
            status = (folder / "status").read_text()
            if step >= self.begun + WARM and "VmRSS:" in status:
                memory = 1024 * int(status.partition("VmRSS:")[2].split()[0])
                self.looks.append((step, memory, len(os.listdir(folder / "fd"))))

    def grown(self) -> list[str]:
        """What it holds more of in the last fifth of its life than in the first."""
        if not self.looks or self.looks[-1][0] - self.looks[0][0] < LEAST:
            return []
        fifth = max(1, len(self.looks) // 5)
        (_, memory, files), (_, more, other) = (
            [median(column) for column in zip(*part, strict=True)] for part in (self.looks[:fifth], self.looks[-fifth:])
        )
        life = f"{self.who}, steps {self.looks[0][0]} to {self.looks[-1][0]}"
        print(f"{life}: {memory / 1e6:.1f} to {more / 1e6:.1f} MB, {files:.0f} to {other:.0f} descriptors", flush=True)
        found = [f"{life}: {memory} to {more} bytes of memory"] if more - memory > GROWTH[self.who] else []
        return found + ([f"{life}: {files} to {other} descriptors"] if other - files > MORE_DESCRIPTORS else [])


@dataclass
class Soak:
    """One run kept alive while things are done to it."""

    run: RunDir
    steps: int
    stack: ExitStack
    lives: dict[str, Life] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    forks: int = 0
    caps: Any = field(default_factory=lambda: cycle(("0.7", "0.6")))

    def go(self) -> list[str]:
        """What is not as it should be at the end."""
        for who in STARTERS:
            self._start(who)
        acts = cycle((self._pivot, self._signal, self._fork, self._restart_proxy, self._kill_trainer))
        for number in range(1, ACTS + 1):
            self._until(number * self.steps // (ACTS + 1))
            next(acts)()
        self._until(self.steps)
        if code := self.lives["trainer"].process.wait():
            self.wrong.append(f"the trainer ended with {code}: {self.lives['trainer'].process.said()[-2000:]}")
        until("all is recorded", lambda: self._recorded() >= self.steps, 600, 0.5)
        self._end("proxy", signal.SIGTERM)
        self.wrong += self.lives["trainer"].grown()
        steps = sorted({entry["step"] for entry in read(self.run.loss)})
        if steps != list(range(1, self.steps + 1)):
            self.wrong.append(f"{len(steps)} steps are on record")
        self._say("verify", self.run.root)
        for who, life in self.lives.items():
            if "Traceback" in life.process.said():
                self.wrong.append(f"a traceback of the {who}")
        return self.wrong

    def _recorded(self) -> int:
        return max((entry["step"] for entry in read(self.run.loss)), default=0)

    def _start(self, who: str) -> None:
        self.lives[who] = Life(who, self.stack.enter_context(STARTERS[who](self.run)), max(0, last_step(self.run)))

    def _end(self, who: str, number: signal.Signals) -> None:
        life = self.lives[who]
        life.process.signal(number)
        code = life.process.wait()
        if code not in (0, -signal.SIGKILL):
            self.wrong.append(f"the {who} ended with {code}: {life.process.said()[-2000:]}")
        self.wrong += life.grown()

    def _until(self, step: int) -> None:
        """Look at both from time to time until the run has come so far."""
        while (at := last_step(self.run)) < step:
            for who, life in self.lives.items():
                assert life.process.process.poll() is None or at >= self.steps, f"{who}: {life.process.said()[-2000:]}"
                life.look(at)
            time.sleep(0.25)

    def _say(self, *arguments: object) -> None:
        """A command of the operator's, which has to succeed."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = andrea([str(argument) for argument in arguments])
        if code:
            self.wrong.append(f"andrea {arguments[0]}: {code}: {said.getvalue()[-2000:]}")

    # What is done to it.

    def _pivot(self) -> None:
        self._say("pivot", self.run.root, "--cap", f"prose={next(self.caps)}")

    def _signal(self) -> None:
        self._say("checkpoint", self.run.root)

    def _fork(self) -> None:
        self.forks += 1
        branch = RunDir(self.run.root.with_name(f"branch-{self.forks}"))
        self._say("fork", self.run.root, branch.root, "--step", max(self.run.checkpoints()))
        self._say("verify", branch.root)

    def _restart_proxy(self) -> None:
        self._end("proxy", signal.SIGTERM)
        self._start("proxy")

    def _kill_trainer(self) -> None:
        self._end("trainer", signal.SIGKILL)
        self._start("trainer")


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    steps = parser.parse_args().steps
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        changes = {**SETTINGS, "optimizer": {**SETTINGS["optimizer"], "max_steps": steps}}
        run = make_run(folder / "run", changes=changes, arms=texts(folder / "texts", words=60_000))
        wrong = Soak(run, steps, stack).go()
    print(
        f"{steps} steps, {ACTS} acts, {time.monotonic() - began:.0f} s; {len(wrong)} things are not as they should be"
    )
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
