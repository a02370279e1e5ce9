"""The table of faults: one row a fault, read by `test_faults`; what is proved elsewhere is named, not repeated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A system call of `who` on the file `path` of its run that fails with `error`, from its `calls` on (strace's
    `when`); `spoilt`: the run's policy cannot be used. Then it ends with `code`, has said `says` and shows no
    traceback; who was refused at its start has trained nothing, who goes on ends as the twin does."""

    who: str
    path: str
    call: str
    error: str
    calls: str = "1+"
    spoilt: bool = False
    code: int = 0
    says: str = ""

    @property
    def name(self) -> str:
        return f"{self.who}: {self.call} of {self.path}, {self.error} ({self.calls})"


STARTS = [
    Row(who, f"{lock}.lock", "openat", error, code=1, says=says)
    for who, lock in (("trainer", "train"), ("proxy", "proxy"))
    for error, says in (
        ("EMFILE", "Too many open files"),
        ("ENFILE", "Too many open files in system"),
        ("ENOMEM", "Cannot allocate memory"),
        ("EROFS", "Read-only file system"),
    )
]
"""What a start is refused."""

ENDS = [Row("proxy", "proxy.pid", "unlink", error, spoilt=True, code=78) for error in ("EROFS", "EIO", "EACCES")]
"""What an end is refused: the code still says how it ended, or the service manager would start it again."""

READS = [
    Row("trainer", "plan.jsonl", "openat", error, calls)
    for error, calls in (("ENFILE", "7..8"), ("EMFILE", "7"), ("EIO", "7..9"))
]
"""What the trainer is refused for a moment: it goes on. The openings before belong to its start."""

PROVED = {
    "no space, a failed fsync, a failed rename": "andrea_train/test_disk.py",
    "a stale pidfile that names another program": "andrea_train/test_start.py, andrea_service/test_identity.py",
    "no file events from the kernel": "andrea_proxy/test_service.py",
    "a proxy that is away, late or slow": "andrea_proxy/test_fallback.py",
    "a power cut at any instant": "crash/test_powercut.py",
    "a disk that hangs or is slow": "systemd/test_stop.py",
    "a hung trainer": "systemd/test_crash.py",
}
"""Fault and the tests that prove what is promised under it."""
