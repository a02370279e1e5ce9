from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from andrea_service import process
from andrea_service.identity import me


def identity_of(pid: int) -> dict[str, object]:
    return {**me(), "pid": pid, "start_ticks": process.start_ticks(pid)}


def refusal(identity: dict[str, object]) -> process.Mismatch:
    with pytest.raises(process.Mismatch) as caught:
        os.close(process.hold(identity))
    return caught.value


def test_start_ticks_are_read_behind_any_program_name(tmp_path: Path) -> None:
    """The kernel prints the name unescaped: ") R 1 1" in it must not shift the fields."""
    program = tmp_path / ") R 1 (x) 2"
    program.symlink_to("/bin/sleep")
    before = process.start_ticks(os.getpid())
    child = subprocess.Popen([program, "60"])
    try:
        while f"({program.name}" not in Path(f"/proc/{child.pid}/stat").read_text():
            pass
        seconds = (process.start_ticks(child.pid) - before) / os.sysconf("SC_CLK_TCK")
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        assert 0 <= seconds <= uptime
        assert abs(process.start_ticks(child.pid) / os.sysconf("SC_CLK_TCK") - uptime) < 5
    finally:
        child.kill()
        child.wait()


def test_hold_gives_a_pidfd_of_the_process_that_wrote_it(sleeper: subprocess.Popen[bytes]) -> None:
    pidfd = process.hold(identity_of(sleeper.pid))
    signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    os.close(pidfd)
    assert sleeper.wait(10) == -signal.SIGTERM


def test_a_recycled_pid_is_foreign(sleeper: subprocess.Popen[bytes]) -> None:
    """What a reused pid looks like: all facts of the dead one but the number's present owner."""
    mismatch = refusal({**me(), "pid": sleeper.pid, "start_ticks": process.start_ticks(sleeper.pid) - 1})
    assert (mismatch.state, str(mismatch)) == ("foreign", f"pid {sleeper.pid} is another program now")


def test_a_reboot_is_seen(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper.pid)
    assert isinstance(identity["start_ticks"], int)
    mismatch = refusal({**identity, "boot_id": "0" * 36, "start_ticks": identity["start_ticks"] - 1})
    assert (mismatch.state, str(mismatch)) == ("foreign", f"pid {sleeper.pid} was noted before the last reboot")


def test_a_boot_id_that_its_writer_could_not_read_is_not_compared(sleeper: subprocess.Popen[bytes]) -> None:
    os.close(process.hold({**identity_of(sleeper.pid), "boot_id": ""}))


def test_a_boot_id_alone_is_no_other_process(sleeper: subprocess.Popen[bytes]) -> None:
    """In a container a fresh /proc, as a unit's sandbox mounts it, shows the host's and not the container's."""
    os.close(process.hold({**identity_of(sleeper.pid), "boot_id": "0" * 36}))


def test_another_pid_namespace_is_foreign(sleeper: subprocess.Popen[bytes]) -> None:
    mismatch = refusal({**identity_of(sleeper.pid), "pid_namespace": process.pid_namespace() + 1})
    assert mismatch.state == "foreign"
    assert "another pid namespace" in str(mismatch)


@pytest.mark.parametrize("reaped", [False, True])
def test_a_dead_process_is_gone_a_zombie_too(sleeper: subprocess.Popen[bytes], reaped: bool) -> None:
    identity = identity_of(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    if reaped:
        sleeper.wait()
    mismatch = refusal(identity)
    assert (mismatch.state, str(mismatch)) == ("foreign", f"the process it names, pid {sleeper.pid}, is gone")


def test_a_number_that_is_now_a_thread_is_foreign() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert refusal({**me(), "pid": thread.native_id}).state == "foreign"
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("pid", [None, 0, -1, "12", 2.0])
def test_no_pid_is_foreign(pid: object) -> None:
    assert refusal({**me(), "pid": pid}).state == "foreign"
    assert refusal({}).state == "foreign"


def test_no_descriptor_is_left_behind(sleeper: subprocess.Popen[bytes]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    refusal({**me(), "pid": sleeper.pid})
    assert set(os.listdir("/proc/self/fd")) == before


HIDDEN = """
import os, sys, json
from andrea_service import process
identity = json.loads(sys.argv[1])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
try:
    process.hold(identity)
except process.Mismatch as mismatch:
    print(mismatch.state, mismatch)
"""


def test_a_hidden_proc_is_unknown_not_dead(sleeper: subprocess.Popen[bytes]) -> None:
    mount = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", HIDDEN]
    identity = json.dumps(identity_of(sleeper.pid))
    done = subprocess.run([*command, identity], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == f"unknown pid {sleeper.pid} lives, but /proc hides it from this user\n"


def test_proc_without_sys_gives_no_boot_id() -> None:
    """As under ProcSubset=pid."""
    mount = 'mount -t proc -o subset=pid proc /proc && exec "$@"'
    code = "from andrea_service.process import boot_id; print(repr(boot_id()))"
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "''\n"
    assert len(process.boot_id()) == 36
