from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from andrea_rundir.eventlog import EventLog
from andrea_rundir.faults import Refused
from andrea_rundir.lock import Lock, write_pidfile
from andrea_rundir.names import RunDir
from andrea_service import presence
from andrea_service.identity import me
from andrea_service.presence import look


def record(run: RunDir, *events: tuple[str, dict[str, Any]]) -> None:
    log = EventLog(run.events)
    for kind, fields in events:
        log.append(kind, **fields)
    log.close()


def test_the_life_of_a_trainer(run: RunDir, trainer: Callable[[], Any]) -> None:
    assert look(run).state == "stopped"
    assert "never started" in look(run).sentence
    child = trainer()
    seen = look(run)
    assert (seen.state, seen.alive) == ("starting", True)
    assert seen.identity is not None
    assert seen.identity["pid"] == child.pid
    child.ask('["start", {"step": 0}]')
    assert look(run).state == "starting"
    child.ask('["step", {"step": 1}]')
    child.ask('["checkpoint", {"step": 1}]')
    seen = look(run)
    assert (seen.state, seen.alive) == ("running", True)
    assert seen.sentence == f"andrea-train (pid {child.pid}) is running; its last step on record is 1."
    assert seen.last_event is not None
    assert seen.last_event["event"] == "step"
    child.ask('["stop", {"step": 1, "reason": "sigterm"}]')
    assert look(run).state == "running"
    assert "about to exit" in look(run).sentence
    assert child.end() == 0
    seen = look(run)
    assert (seen.state, seen.alive) == ("stopped", False)
    assert seen.sentence == "andrea-train stopped as asked (SIGTERM) at step 1; a start goes on from there."
    # A new one: the steps of the one before are not its own.
    trainer()
    assert look(run).state == "starting"


def test_killed_between_steps_is_stale_and_so_is_its_successor_that_says_nothing(
    run: RunDir, trainer: Callable[[], Any]
) -> None:
    child = trainer()
    child.ask('["step", {"step": 7}]')
    child.send(signal.SIGKILL)
    child.process.wait()
    seen = look(run)
    assert (seen.state, seen.alive) == ("stale", False)
    assert "after step 7" in seen.sentence
    record(run, ("stop", {"step": 7, "reason": "sigterm"}))
    assert look(run).state == "stopped"
    time.sleep(0.002)  # times have milliseconds
    successor = trainer()
    successor.send(signal.SIGKILL)
    successor.process.wait()
    assert look(run).state == "stale"
    assert "before it recorded anything" in look(run).sentence


@pytest.mark.parametrize(
    ("kind", "reason", "state", "words"),
    [
        ("stop", "sigterm", "stopped", "SIGTERM"),
        ("stop", "sigint", "stopped", "Ctrl-C"),
        ("stop", "until-step", "stopped", "--until-step"),
        ("stop", "finished", "finished", "all steps are done"),
        ("stop", "data exhausted", "finished", "data is exhausted"),
        ("halt", "diverged: 8 skips in a row", "halted", "diverged: 8 skips in a row"),
    ],
)
def test_how_it_ended(run: RunDir, kind: str, reason: str, state: str, words: str) -> None:
    with Lock.acquire(run.train_lock, me()):
        record(run, ("step", {"step": 9}), (kind, {"step": 9, "reason": reason}), ("probe", {"step": 9}))
    seen = look(run)
    assert seen.state == state
    assert words in seen.sentence
    assert "step 9" in seen.sentence


def test_a_fork_has_events_but_was_never_started(run: RunDir) -> None:
    record(run, ("step", {"step": 9}))
    assert look(run).state == "stopped"
    assert "never started" in look(run).sentence


def test_a_lock_emptied_by_a_power_cut_does_not_hide_the_death(run: RunDir) -> None:
    record(run, ("step", {"step": 9}))
    run.train_lock.touch()
    assert look(run).state == "stale"


def test_the_wrong_holder_is_foreign(run: RunDir, sleeper: subprocess.Popen[bytes]) -> None:
    with Lock.acquire(run.train_lock, {**me(), "pid": sleeper.pid}):
        seen = look(run)
    assert (seen.state, seen.alive) == ("foreign", False)
    assert f"fuser -v {run.train_lock}" in seen.sentence


def test_a_container_is_foreign_from_outside_and_running_from_inside(run: RunDir, trainer: Callable[..., Any]) -> None:
    child = trainer(before=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
    child.ask('["step", {"step": 1}]')
    assert look(run).state == "foreign"
    (inside,) = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    code = (
        "import sys; from pathlib import Path; from andrea_rundir.names import RunDir;"
        "from andrea_service.presence import look; print(look(RunDir(Path(sys.argv[1]))).state)"
    )
    command = ["nsenter", "--target", inside, "--pid", "--mount", sys.executable, "-c", code, str(run.root)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout == "running\n"


def test_a_new_owner_gets_a_moment_to_write_who_it_is(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_PATIENCE", 60.0)
    lock = os.open(run.train_lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    late = threading.Timer(0.1, lambda: os.pwrite(lock, json.dumps(me()).encode() + b"\n", 0))
    late.start()
    try:
        assert look(run).state == "starting"
    finally:
        late.join()
        os.close(lock)


def test_the_proxy_by_its_lock_and_pidfile(run: RunDir) -> None:
    assert look(run, "proxy").state == "stopped"
    with Lock.acquire(run.proxy_lock, me()):
        write_pidfile(run.proxy_pid, os.getpid())
        seen = look(run, "proxy")
        assert (seen.state, seen.sentence) == ("running", f"andrea-proxy (pid {os.getpid()}) is running.")
        assert look(run).state == "stopped"
    assert look(run, "proxy").state == "stale"
    run.proxy_pid.unlink()
    assert look(run, "proxy").state == "stopped"


def test_looking_leaves_no_trace(run: RunDir) -> None:
    look(run)
    look(run, "proxy")
    assert os.listdir(run.root) == ["run.toml"]


def test_no_run_is_refused(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(Refused, match="no run here"):
            look(RunDir(root))


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from andrea_rundir.names import RunDir
from andrea_service.presence import look
os.chdir(sys.argv[1])  # while we may: what is above is closed
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
seen = look(RunDir(Path(".")))
print(seen.state, seen.sentence)
"""


def as_nobody(run: RunDir, *before: str) -> str:
    command = [*before, sys.executable, "-c", UNPRIVILEGED, str(run.root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def test_what_may_not_be_read_is_unknown(run: RunDir, trainer: Callable[[], Any]) -> None:
    trainer().ask('["step", {"step": 1}]')
    run.root.chmod(0o755)
    assert as_nobody(run).startswith("unknown andrea-train: cannot be read: Permission denied: train.lock.")
    run.train_lock.chmod(0o644)
    assert as_nobody(run).startswith("unknown andrea-train: cannot be read: Permission denied: events/000001")
    run.root.chmod(0o700)
    assert as_nobody(run).startswith("unknown andrea-train: cannot be read: Permission denied")


def test_a_hidden_proc_is_unknown(run: RunDir, trainer: Callable[[], Any]) -> None:
    trainer()
    run.root.chmod(0o755)
    run.train_lock.chmod(0o644)
    hidden = ("unshare", "--mount", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")
    assert as_nobody(run).startswith("starting")
    assert as_nobody(run, *hidden).startswith("unknown andrea-train: the lock is held, but pid")


def test_light_imports() -> None:
    """A command that only asks must not pay for numpy, pydantic or torch."""
    code = (
        "import sys; from andrea_service import errors, identity, journal, notify, presence, signals;"
        "print(sorted({'numpy', 'pydantic', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"[]\n"
