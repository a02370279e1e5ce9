"""Short lives of the real trainer and the real proxy, each alone, under system calls that fail: seconds each, so that
there can be one for every call of a life.

A trainer is given the plan of a quiet run beforehand; a proxy has a trainer without a model beside it. Both are told
from a quiet life by nothing but what they do: same files, same end.
"""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from andrea_rundir import digests, inspection
from andrea_rundir.entries import read as entries
from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from harness import Trainer, sidecar_diff, start, start_proxy, twin_diff, until
from harness.dry import DryTrainer

LAST, CADENCE = 15, 5
SETTINGS = {
    "run": {"plan_wait": 3600.0},
    "optimizer": {"max_steps": LAST},
    "checkpoint": {"every": CADENCE, "keep_last": 2},
    "probe": {"every": 2 * CADENCE},
    "samples": {"tokens": 4},
}
SEGMENTS = 8
"""Segments of events, at most, that one life begins."""


PATIENCE = 150.0
"""Seconds that one life may take."""


@dataclass(frozen=True)
class Injection:
    """System calls that fail: strace's `calls`, `error` and `when` (each thread counts its own)."""

    calls: str
    error: str
    when: str


def under(run: RunDir, injection: Injection) -> list[str]:
    """The command under which calls on files of the run fail, and on no others. The names of temporary files have the
    process's number in them: the shell, which becomes the process, knows it."""
    published = [
        *(run.train_pid, run.proxy_pid, run.sums, run.plan, run.loss, run.state, run.samples, run.policy_toml),
        *(run.checkpoint(step) for step in range(0, LAST + 1, CADENCE)),
    ]
    paths = {run.root, run.events, run.train_lock, run.proxy_lock, *published, *run.root.rglob("*")}
    paths |= {run.events / f"{number:06d}.jsonl" for number in range(1, SEGMENTS + 1)}
    if injection.error == "EINTR":  # no local disk interrupts the opening of a folder, and Python does not expect it
        paths -= {run.root, run.events, run.data}
    quoted = [shlex.quote(str(path)) for path in sorted(paths)]
    quoted += [f"{shlex.quote(str(run.root))}/.{path.name}.$$.tmp" for path in published]
    trace = f"-e trace={injection.calls} -e signal=none -o {shlex.quote(str(strace_of(run)))}"
    inject = f"-e inject={injection.calls}:error={injection.error}:when={injection.when}"
    files = " ".join(f"-P {path}" for path in quoted)
    return ["sh", "-c", f'exec strace -D -f -qq {files} {trace} {inject} "$@"', "sh"]


def strace_of(run: RunDir) -> Path:
    """What strace wrote: the calls on files of the run."""
    return Path(f"{run.root}.strace")


def injected(run: RunDir) -> int:
    """How many calls were made to fail."""
    return strace_of(run).read_text().count("(INJECTED)")


def copied(template: RunDir, folder: Path) -> RunDir:
    """A run that has not begun, as the template."""
    shutil.copytree(template.root, folder)
    return RunDir(folder)


def train(run: RunDir, injection: Injection | None = None) -> Trainer:
    """A trainer's life, to its end."""
    with start(run, under=under(run, injection) if injection else None) as trainer:
        trainer.wait(300)
    return trainer


class Ended(Exception):
    """The proxy has ended while its trainer waited for it."""


def serve(run: RunDir, injection: Injection | None = None) -> Trainer:
    """A proxy's life beside a trainer without a model, until all is recorded or the proxy has ended by itself."""
    deadline = time.monotonic() + PATIENCE
    with start_proxy(run, under=under(run, injection) if injection else None) as proxy:

        def wait() -> bool:
            if proxy.process.poll() is not None:
                raise Ended
            assert time.monotonic() < deadline, f"nothing more is planned or recorded: {proxy.said()}"
            time.sleep(0.002)
            return True

        with suppress(Ended):
            DryTrainer(run, wait).train(LAST)
            until("all is recorded", lambda: wait() and recorded(run) >= LAST, pause=0.01)
            proxy.stop()
    return proxy


LIVES: dict[str, Callable[..., Trainer]] = {"trainer": train, "proxy": serve}


def recorded(run: RunDir) -> int:
    """The newest step that the proxy has on record."""
    return max((entry["step"] for entry in entries(run.loss)), default=0) if run.loss.exists() else 0


def unlike(run: RunDir, whole: RunDir, who: str) -> list[str]:
    """How the end of a life differs from that of the quiet one."""
    found = [f"left over: {path.name}" for path in run.root.glob(".*.tmp")]
    if who == "proxy":
        return found + sidecar_diff(run, whole)
    lines = digests.read(run.sums)
    for step, path in run.checkpoints().items():
        facts = inspection.inspect(path)
        if facts.problem or lines.get(path.name) != facts.digest:
            found.append(f"{path.name}: {facts.problem}, its line says {lines.get(path.name)}, it is {facts.digest}")
        if not any(event["event"] == "snapshot" and event["step"] == step for event in read(run.events)):
            found.append(f"{path.name} is ahead of its events")
    steps = [event["step"] for event in read(run.events) if event["event"] == "step"]
    if sorted(set(steps)) != list(range(1, LAST + 1)):
        found.append(f"steps on record: {steps}")
    return found + twin_diff(run, whole, LAST, cadence=LAST)
