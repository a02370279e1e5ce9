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


@dataclass(frozen=True)
class Every:
    """A system call of `who` on any file of its run that fails with `error`, once: at the first call, at the second,
    and so on to the last of a short life, one life for each. `when`: strace's, for calls that fail many times in one
    life. At its start it may be refused, with 1 and words, and has done nothing then; later on it goes on. Either way
    it ends as the quiet one, after one more start where it was refused. `sample`: the lives in `make test`."""

    who: str
    calls: str
    error: str
    sample: tuple[str, ...] = ()
    when: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.who}: every {self.calls}, {self.error}"


WRITES, SYNCS, NAMES = "write,pwrite64", "fsync,fdatasync", "rename,link"
INTERRUPTED = (f"{WRITES},{SYNCS},openat", "EINTR")
EVERY = [
    Every("trainer", WRITES, "ENOSPC", ("7",)),
    Every("trainer", WRITES, "EIO"),
    Every("trainer", SYNCS, "EIO", ("5",)),
    Every("trainer", NAMES, "EIO"),
    Every("trainer", "openat", "EMFILE"),
    Every("trainer", *INTERRUPTED, when=("1+2", "2+2")),
    Every("proxy", WRITES, "ENOSPC", ("4",)),
    Every("proxy", WRITES, "EIO"),
    Every("proxy", SYNCS, "EIO"),
    Every("proxy", NAMES, "EIO", ("2",)),
    Every("proxy", "openat", "EMFILE", ("9", "42")),
    Every("proxy", *INTERRUPTED, sample=("2+2",), when=("1+2", "2+2")),
]
"""What is refused at the k-th call, for every k. Interrupted calls are every second one, from the first or the second
on: the other ones are the tries that follow."""

DESCRIPTORS = [8, 6, 7, 11, 12, 16, 32, 64]
"""Files that a process may have open at once, for a whole life; with 5 Python itself does not start. Too few are told
in words at the start, with 1, or the run ends as any other."""

PROVED = {
    "no space, a failed fsync, a failed rename": "andrea_train/test_disk.py",
    "a run removed, moved, closed, its disk read-only": "faults/test_places.py",
    "events, plan or history removed under both": "andrea_proxy/test_twin.py",
    "either side stands still, a clock jumps": "faults/test_clocks.py",
    "a stale pidfile that names another program": "andrea_train/test_start.py, andrea_service/test_identity.py",
    "no file events from the kernel": "andrea_proxy/test_service.py",
    "a proxy that is away, late or slow": "andrea_proxy/test_fallback.py",
    "libraries replaced, or out of reach, while it runs": "faults/test_imports.py",
    "a power cut at any instant": "crash/test_powercut.py",
    "a disk that hangs or is slow": "systemd/test_stop.py",
    "a hung trainer": "systemd/test_crash.py",
}
"""Fault and the tests that prove what is promised under it."""
