"""One process, named beyond doubt: a pid is an address that the kernel gives away again.

Promises that `hold` returns a pidfd only of the very process that wrote an identity. The facts compared are
the start time (field 22 of /proc/PID/stat, proc(5)), the boot id and the pid namespace; a pidfd pins the
process while they are read, so a pid recycled half-way cannot pass. Writes nothing. Standard library only.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Mapping
from pathlib import Path
from typing import Literal


class Mismatch(Exception):
    """The identity's process was not found; `state` says whether that is known or could not be read."""

    def __init__(self, state: Literal["foreign", "unknown"], reason: str) -> None:
        super().__init__(reason)
        self.state: Literal["foreign", "unknown"] = state


def start_ticks(pid: int) -> int:
    """Clock ticks between boot and the start of `pid`; OSError when /proc does not show it."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    # The second field is the program's name in parentheses and may hold blanks and parentheses itself.
    return int(stat[stat.rindex(b")") + 1 :].split()[19])


def boot_id() -> str:
    """The kernel's random id of this boot; empty where /proc/sys is hidden (ProcSubset=pid)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except FileNotFoundError:
        return ""


def pid_namespace() -> int:
    """Inode of our pid namespace: pids mean the same only where it is the same."""
    return Path("/proc/self/ns/pid").stat().st_ino


def hold(identity: Mapping[str, object]) -> int:
    """A pidfd (the caller closes it) of the live process that wrote `identity`; raises Mismatch."""
    pid = identity.get("pid")
    if not isinstance(pid, int) or not 0 < pid < 1 << 31:
        raise Mismatch("foreign", "the lock names no process")
    if identity.get("pid_namespace") != pid_namespace():
        raise Mismatch("foreign", f"it is pid {pid} of another pid namespace (a container), not of this one")
    try:
        pidfd = _open(pid)
        try:
            _compare(pid, pidfd, identity.get("start_ticks"))
        except BaseException:
            os.close(pidfd)
            raise
    except Mismatch as mismatch:
        # Boot ids only explain: in a container the one outside a unit's sandbox is not the one inside.
        ours, theirs = boot_id(), identity.get("boot_id")
        if mismatch.state == "foreign" and ours and theirs and ours != theirs:
            raise Mismatch("foreign", f"pid {pid} was noted before the last reboot") from None
        raise
    return pidfd


def _open(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise Mismatch("foreign", f"the process it names, pid {pid}, is gone") from None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):  # the number is a thread's, not a process's
            raise Mismatch("foreign", f"pid {pid} is no process of its own any more") from None
        raise Mismatch("unknown", f"pid {pid} cannot be looked at: {error.strerror}") from error


def _compare(pid: int, pidfd: int, expected: object) -> None:
    try:
        found = start_ticks(pid)
    except OSError:
        if _exited(pidfd):
            raise Mismatch("foreign", f"the process it names, pid {pid}, is gone") from None
        raise Mismatch("unknown", f"pid {pid} lives, but /proc hides it from this user") from None
    if _exited(pidfd):
        raise Mismatch("foreign", f"the process it names, pid {pid}, is gone")
    if found != expected:
        raise Mismatch("foreign", f"pid {pid} is another program now")


def _exited(pidfd: int) -> bool:
    """A pidfd turns readable when its process ends, a zombie's at once."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))
