"""Real trainers and proxies in real processes, started as the units start them: with the signals blocked before
Python runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from andrea_rundir.names import RunDir

TESTS = Path(__file__).parents[1]
BLOCKED = ["env", "--block-signal=USR1", "--block-signal=TERM"]


def stands_still(pid: int) -> bool:
    """Whether every thread of a process was stopped by a SIGSTOP."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


@dataclass
class Trainer:
    """A started trainer or proxy; its output is in a file, so that it never waits for a reader."""

    run: RunDir
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self, timeout: float = 150) -> int:
        """The exit code; a trainer that does not end is killed and fails the test with what it said."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler shows where it hangs
            time.sleep(0.5)
            self.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.said()}") from None

    def frozen(self) -> bool:
        """Whether it was stopped by a SIGSTOP, as a failpoint may send it."""
        return stands_still(self.pid)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def start(
    run: RunDir,
    *args: str,
    hurt: list[dict[str, object]] | None = None,
    under: list[str] | None = None,
    env: dict[str, str] | None = None,
    new_group: bool = False,
) -> Trainer:
    """Start a trainer on `run`. `hurt` is a list of failpoints (see harness.failpoints); `under` a wrapper command."""
    output = run.root.with_name(run.root.name + ".log")
    return _start("andrea_train.main", run, args, hurt, under, env, new_group, output)


def start_proxy(
    run: RunDir,
    *args: str,
    hurt: list[dict[str, object]] | None = None,
    under: list[str] | None = None,
    env: dict[str, str] | None = None,
    new_group: bool = False,
) -> Trainer:
    """Start a proxy on `run`, as `start` starts a trainer; without the page, unless it is given a port."""
    args = args if "--port" in args else (*args, "--no-web")
    output = run.root.with_name(run.root.name + ".proxy.log")
    return _start("andrea_web.main", run, args, hurt, under, env, new_group, output)


def _start(
    module: str,
    run: RunDir,
    args: tuple[str, ...],
    hurt: list[dict[str, object]] | None,
    under: list[str] | None,
    env: dict[str, str] | None,
    new_group: bool,
    output: Path,
) -> Trainer:
    program = ["-m", "harness.failpoints", json.dumps(hurt), module] if hurt else ["-m", module]
    command = [*(under or []), *BLOCKED, sys.executable, *program, "--run", str(run.root), *args]
    with output.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}", **(env or {})},
            start_new_session=new_group,
        )
    _past_the_wrappers(process)
    return Trainer(run, process, output)


def _past_the_wrappers(process: subprocess.Popen[bytes]) -> None:
    """Return at the first instant at which the process is Python: `env` itself, before it has blocked them, dies of
    signals as any program would."""
    while process.poll() is None:
        with contextlib.suppress(OSError):  # it has just ended
            if "python" in os.readlink(f"/proc/{process.pid}/exe"):
                return
