"""Who this process is, in words another process can check; and the only way to signal the one a lock names.

`me` is the content of `train.lock` and `proxy.lock`. `send` never signals a number read from a file: it holds
the process by a pidfd, compares the identity, and only then sends. `name` is what an asker keeps of it, to reach this
very process later or none. Writes nothing. Imports `andrea_rundir`
and the standard library.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping
from datetime import UTC, datetime

from andrea_rundir.faults import Refused
from andrea_rundir.names import RunDir
from andrea_service import process
from andrea_service.presence import Which, look


def me(run_id: str = "") -> dict[str, object]:
    """Identity of this process: what `process.hold` compares, and what an operator wants to read.

    `since` is the UTC time of this call, in the form of an event's time: it tells this process's events from
    those of the one before it.
    """
    return {
        "pid": os.getpid(),
        "start_ticks": process.start_ticks(os.getpid()),
        "boot_id": process.boot_id(),
        "pid_namespace": process.pid_namespace(),
        "invocation_id": os.environ.get("INVOCATION_ID", ""),
        "host": socket.gethostname(),
        "run_id": run_id,
        "since": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def name(identity: Mapping[str, object]) -> str:
    """One word that no other process ever has: boot, pid and start time."""
    return "-".join(str(identity.get(key)) for key in ("boot_id", "pid", "start_ticks"))


def send(run: RunDir, sig: signal.Signals, which: Which = "train", *, only: str | None = None) -> int:
    """Send `sig` to the service of `run` and return its pid; Refused unless it is starting or running.

    `only`: the `name` of the one process that is meant; Refused when another has taken its place.
    """
    seen = look(run, which)
    if not seen.alive or seen.identity is None:
        raise Refused(f"not signalled: {seen.sentence}", where=str(run.root))
    if only not in (None, name(seen.identity)):
        raise Refused(
            "not signalled: another process has taken its place",
            where=str(run.root),
            found=seen.sentence,
            todo="look again, and ask again if it is still wanted",
        )
    try:
        pidfd = process.hold(seen.identity)
    except process.Mismatch as mismatch:  # it ended, or was replaced, since we looked
        raise Refused(f"not signalled: {mismatch}", where=str(run.root)) from None
    try:
        signal.pidfd_send_signal(pidfd, sig)
    except ProcessLookupError:
        raise Refused("not signalled: it ended just now", where=str(run.root)) from None
    except PermissionError:
        raise Refused(
            f"not permitted to signal pid {seen.identity['pid']}",
            where=str(run.root),
            found=f"user {os.geteuid()}",
            expected="root or the user the service runs as",
            todo="repeat the command with sudo",
        ) from None
    finally:
        os.close(pidfd)
    return int(seen.identity["pid"])
