from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from andrea_rundir.faults import Refused
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_service import process
from andrea_service.identity import me, send


def test_me_is_this_process_as_others_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INVOCATION_ID", "0123")
    identity = json.loads(json.dumps(me("r1")))
    assert identity["pid"] == os.getpid()
    assert identity["run_id"] == "r1"
    assert identity["invocation_id"] == "0123"
    assert identity["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert f"pid:[{identity['pid_namespace']}]" == os.readlink("/proc/self/ns/pid")
    assert len(identity["since"]) == len("2026-11-29T21:30:07.123Z")
    os.close(process.hold(identity))


def test_me_outside_a_unit_has_no_invocation_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    assert me()["invocation_id"] == ""


@pytest.mark.parametrize("step", [False, True])
def test_starting_and_running_are_signalled(run: RunDir, trainer: Callable[[], Any], step: bool) -> None:
    child = trainer()
    if step:
        child.ask('["step", {"step": 1}]')
    before = os.listdir("/proc/self/fd")
    assert send(run, signal.SIGUSR1) == child.pid
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert child.ask('["wait", "checkpoint_wanted"]') == "True"
    assert send(run, signal.SIGTERM) == child.pid
    assert child.ask('["wait", "stop_wanted"]') == "True"


def refused(run: RunDir) -> str:
    with pytest.raises(Refused) as caught:
        send(run, signal.SIGTERM)
    assert caught.value.where == str(run.root)
    return caught.value.what


def test_a_run_that_never_started_or_does_not_exist_is_refused(run: RunDir) -> None:
    assert refused(run).startswith("not signalled: andrea-train was never started here")
    assert refused(RunDir(run.root / "none")) == "no run here"


def test_after_a_kill_nothing_is_signalled(run: RunDir, trainer: Callable[[], Any]) -> None:
    child = trainer()
    child.send(signal.SIGKILL)
    child.process.wait()
    assert "ended before it recorded anything" in refused(run)


def test_a_recycled_pid_is_never_signalled(run: RunDir, sleeper: subprocess.Popen[bytes]) -> None:
    """The lock is held, the number in it is another live program's."""
    dead = {**me(), "pid": sleeper.pid}
    with Lock.acquire(run.train_lock, dead):
        assert "another program now" in refused(run)
    assert "andrea-train took the lock" in refused(run)  # free now: stale
    with pytest.raises(subprocess.TimeoutExpired):
        sleeper.wait(0.1)


def test_a_pid_of_another_namespace_is_never_signalled(run: RunDir, trainer: Callable[..., Any]) -> None:
    """It is pid 1 in its container; ours is someone else."""
    trainer(before=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
    assert json.loads(run.train_lock.read_text())["pid"] == 1
    assert "another pid namespace" in refused(run)


def test_a_holder_that_outlives_its_owner_is_never_signalled(run: RunDir) -> None:
    """A child that got the open lock file keeps the lock held; the identity is a dead process's."""
    code = (
        "import fcntl, json, subprocess, sys; from andrea_service.identity import me;"
        "lock = open(sys.argv[1], 'w'); fcntl.flock(lock, fcntl.LOCK_EX); json.dump(me(), lock); lock.flush();"
        "print(subprocess.Popen(['sleep', '60'], pass_fds=[lock.fileno()], stdout=-3, stderr=-3).pid)"
    )
    command = [sys.executable, "-c", code, str(run.train_lock)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    try:
        assert "is gone" in refused(run)
        assert Path(f"/proc/{done.stdout.strip()}/stat").exists()
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def test_without_the_right_to_signal_it_says_whose_right_it_is(run: RunDir, trainer: Callable[[], Any]) -> None:
    child = trainer()
    run.root.chmod(0o755)
    run.train_lock.chmod(0o644)
    code = (
        "import os, signal, sys; from pathlib import Path; from andrea_rundir.names import RunDir;"
        "from andrea_service import errors, identity;"
        "os.chdir(sys.argv[1]); os.setresuid(65534, 65534, 65534); run = RunDir(Path('.'));"
        "sys.exit(errors.boundary(lambda: identity.send(run, signal.SIGTERM), 'andrea'))"
    )
    command = [sys.executable, "-c", code, str(run.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith(f"andrea: not permitted to signal pid {child.pid}\n")
    assert "sudo" in done.stderr
    assert child.process.poll() is None


def test_the_torn_identity_of_a_new_owner_is_waited_for(run: RunDir) -> None:
    with run.train_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write('{"pid": ')
        lock.flush()
        assert "names no process" in refused(run)
