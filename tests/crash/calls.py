"""The system calls that a command made, as strace has them: every one that can change a file, in order.

strace was chosen over a shim inside Python because nothing can go round it: not a C library, not a child process, not
O_DIRECT. What it does not show (stores into shared writable mappings, io_uring) `deeds` refuses; and a replay of the
recording must give, byte for byte, what lies on the disk at the end.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CALLS = (
    "open openat openat2 creat write pwrite64 writev pwritev pwritev2 lseek truncate ftruncate fallocate fsync"
    " fdatasync sync syncfs sync_file_range msync rename renameat renameat2 link linkat symlink symlinkat unlink"
    " unlinkat mkdir mkdirat rmdir copy_file_range sendfile splice ioctl mmap io_uring_setup clone clone3 fork vfork"
    " dup dup2 dup3"
).split()
LONGEST = 1 << 24

_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|\?|0x[0-9a-f]+)(.*)", re.DOTALL)
_BEGUN = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>", re.DOTALL)
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_FD = re.compile(r"^(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>")
_ENDED = re.compile(r"(\d+) +\+\+\+ .* \+\+\+")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


class Unknown(Exception):
    """A call on our files that the recorder does not know how to follow."""


def traced(command: list[str], output: Path, env: dict[str, str]) -> list[Call]:
    """Runs the command, which must end with 0; all its calls, in the order in which they ended."""
    strace = ["strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", str(LONGEST), "-e", "signal=none"]
    done = subprocess.run(
        [*strace, "-o", str(output), "-e", "trace=" + ",".join(CALLS), *command],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with output.open(encoding="ascii") as lines:
        return list(calls(lines))


@dataclass(frozen=True)
class Call:
    """A call that worked. `args` as strace shows them."""

    thread: int
    name: str
    args: str
    result: int
    begin: int
    end: int


def calls(lines: Iterator[str]) -> Iterator[Call]:
    """In the order in which they ended."""
    begun: dict[int, tuple[str, int]] = {}
    for number, line in enumerate(lines):
        begin, whole = number, line.rstrip("\n")
        if found := _ENDED.fullmatch(whole):
            yield Call(int(found[1]), "end", "", 0, number, number)
            continue
        if found := _BEGUN.fullmatch(whole):
            begun[int(found[1])] = (f"{found[1]} {found[2]}({found[3]}", number)
            continue
        if found := _RESUMED.fullmatch(whole):
            start, begin = begun.pop(int(found[1]))
            whole = start + found[3]
        call = _LINE.fullmatch(whole)
        if call is not None and call[4] not in ("-1", "?"):
            yield Call(int(call[1]), call[2], call[3], int(call[4], 0), begin, number)


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def fds(args: str) -> list[str]:
    """The paths of the descriptors among the arguments."""
    return [_unhex(found).decode() for found in re.findall(r"(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>", args)]


def paths(args: str) -> list[str]:
    """The paths that a call names, absolute: a relative one starts at the descriptor before it, if there is one."""
    found = []
    for match in re.finditer(r'(?:(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>, )?"((?:\\x[0-9a-f]{2})*)"', args):
        base, path = _unhex(match[1] or "").decode(), _unhex(match[2]).decode(errors="surrogateescape")
        found.append(path if path.startswith("/") else f"{base}/{path}".rstrip("/"))
    return found


def data(call: Call) -> bytes:
    """What was written: as much as the result says."""
    pieces = []
    for text, cut in TEXT.findall(call.args):
        if cut:
            raise Unknown(f"more than {LONGEST} bytes at once")
        pieces.append(_unhex(text))
    return b"".join(pieces)[: call.result]
