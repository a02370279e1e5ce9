"""Real processes, started as a unit starts them: SIGUSR1 and SIGTERM blocked before Python begins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from andrea_rundir.names import RunDir

LAUNCH = ("env", "--block-signal=USR1", "--block-signal=TERM")


class Child:
    """One process; `ask` writes a line to it and returns the line it answers."""

    def __init__(self, command: Sequence[str], env: dict[str, str], stderr: IO[bytes] | None) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env={**os.environ, **env}
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().rstrip("\n")

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> int:
        """Close its input and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(20)

    def send(self, number: int) -> None:
        self.process.send_signal(number)


Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    """start(code, *args, before=(), env={}, stderr=None): `python -c code args` under the unit's launcher."""
    children: list[Child] = []

    def run(
        code: str,
        *args: object,
        before: Sequence[str] = (),
        env: dict[str, str] | None = None,
        stderr: IO[bytes] | None = None,
    ) -> Child:
        command = [*LAUNCH, *before, sys.executable, "-c", code, *map(str, args)]
        children.append(Child(command, env or {}, stderr))
        return children[-1]

    yield run
    for child in children:
        child.send(signal.SIGKILL)
        child.process.wait()
        for pipe in (child.process.stdin, child.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "run.toml").write_text("")
    return RunDir(tmp_path)


TRAINER = """
import json, sys
from andrea_service import signals
signals.block()
from pathlib import Path
from andrea_rundir.eventlog import EventLog
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_service.identity import me
wishes = signals.Signals()
wishes.install()
run = RunDir(Path(sys.argv[1]))
lock = Lock.acquire(run.train_lock, me("r1"))
log = EventLog(run.events)
print("ready", flush=True)
for line in sys.stdin:
    kind, fields = json.loads(line)
    if kind == "wait":
        print(getattr(wishes, fields).wait(10), flush=True)
    else:
        log.append(kind, **fields)
        print("done", flush=True)
"""


@pytest.fixture
def trainer(start: Start, run: RunDir) -> Callable[..., Child]:
    """A process that holds the lock of `run` and records what it is asked to."""

    def begin(**options: Any) -> Child:
        child = start(TRAINER, run.root, **options)
        assert child.hear() == "ready"
        return child

    return begin


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Some other program; any signal we send would end it."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()
