"""The checkpoint file: int32 step, int32 n, n float32 weights, n of Adam's m, n of Adam's v, little-endian.

Reads and verifies; writes no file (the trainer's saver publishes, `set_aside` renames). Imports the standard
library, numpy and our layout, names, digests, publish and faults.
The format carries no checksum, so a file is used only if everything that can be checked is right: size,
step, number of parameters, SHA-256, finite values, v >= 0. Reading, hashing and looking at the values
run beside each other, so that verifying costs little more than the slowest of the three.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import stat
import struct
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from andrea_rundir import digests
from andrea_rundir.faults import NoCheckpoint, Refused
from andrea_rundir.layout import MAX_PARAMS, Parameter, Shape, parameters
from andrea_rundir.names import RunDir, checkpoint_step
from andrea_rundir.publish import BLOCK, aside, fsync_dir, image_buffer, set_direct

HEADER = struct.Struct("<ii")
"""step, n_params."""

REGIONS = ("w", "m", "v")
"""Weights, then Adam's first and second moments: `n_params` float32 each, in the order of `layout`."""

_PIECE = 4 << 20
_DEPTH = 4
"""Pieces that may wait for hashing and looking while the next is read."""
_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Refusals that say nothing about the file."""

Values = npt.NDArray[np.float32]


class Invalid(Exception):
    """This file is not a usable checkpoint; the text is the reason, one line with found and expected."""


@dataclass(frozen=True)
class Header:
    """The first eight bytes."""

    step: int
    n_params: int


@dataclass
class Region:
    """One third of the values, or a matrix's part of it: extremes and L2 norm of the finite ones, and how many are
    not finite."""

    low: float = math.inf
    high: float = -math.inf
    norm: float = 0.0
    not_finite: int = 0


@dataclass(frozen=True)
class Facts:
    """What a file says about itself. `problem` is why a run would not use it, None if it would."""

    step: int
    n_params: int
    size: int
    digest: str
    regions: dict[str, Region]
    problem: str | None
    tensors: dict[str, dict[str, Region]]
    """The same for every matrix, by its name and REGIONS; empty where the shape is not known."""

    @property
    def finite(self) -> bool:
        """Whether all values are."""
        return all(region.not_finite == 0 for region in self.regions.values())


@dataclass(frozen=True)
class Passed:
    """A candidate that was not used, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Choice:
    """The checkpoint to resume from, already in memory, and every newer one that was passed over."""

    step: int
    path: Path
    digest: str
    has_digest_line: bool
    passed: list[Passed] = field(default_factory=list)


def file_size(n_params: int) -> int:
    """Bytes of a file of `n_params` parameters."""
    return HEADER.size + 12 * n_params


def read_header(path: Path) -> Header:
    """Step and number of parameters, checked against the file's size; Invalid otherwise."""
    fd, size = _open(path)
    try:
        header = _header(os.pread(fd, HEADER.size, 0), size)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(fd)
    return header


def load(path: Path, image: memoryview, *, step: int, n_params: int, digest: str | None) -> str:
    """Reads the file into `image`, verifying it on the way; returns its SHA-256 in hex.

    `image`: exactly `file_size(n_params)` bytes, page-aligned for full speed. `digest`: what it should be,
    None when nothing is on record. Invalid says what was found and expected; `image` is undefined then.
    """
    if len(image) != file_size(n_params):
        raise ValueError(f"an image of {len(image)} bytes for {n_params} parameters")
    fd, size = _open(path)
    bad: list[str] = []

    def look(start: int, piece: memoryview) -> None:
        if reason := unsound(start, piece, n_params):
            bad.append(reason)

    try:
        if size != file_size(n_params):
            raise Invalid(f"{size} bytes, expected {file_size(n_params)} for {n_params} parameters")
        header = _header(os.pread(fd, HEADER.size, 0), size)
        if header.step != step:
            raise Invalid(f"the header says step {header.step}, expected {step}")
        found = _scan(fd, size, lambda start, end: image[start:end], look)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(fd)
    if digest is not None and found != digest:
        raise Invalid(f"SHA-256 is {found}, expected {digest}")
    if bad:
        raise Invalid(bad[0])
    return found


def inspect(path: Path, shape: Shape | None = None) -> Facts:
    """The same verification in bounded memory, for a reader; Invalid when size and header do not agree.

    `shape`: of the model, with as many parameters, so that each matrix can be told of.
    """
    header = read_header(path)
    parts = [Parameter("", (header.n_params, 1), 0)] if shape is None else parameters(shape)
    if parts[-1].offset + parts[-1].size != header.n_params:
        raise ValueError(f"a shape of other than {header.n_params} parameters")
    tensors = {part.name: {name: Region() for name in REGIONS} for part in parts}
    starts = [part.offset for part in parts]
    bad: list[str] = []
    if checkpoint_step(path.name) not in (None, header.step):
        bad.append(f"the header says step {header.step}, the name {path.name}")

    def look(start: int, piece: memoryview) -> None:
        for name, first, values in _values(start, piece, header.n_params):
            for part in parts[bisect_right(starts, first) - 1 : bisect_left(starts, first + len(values))]:
                low, high = max(0, part.offset - first), part.offset + part.size - first
                _measure(tensors[part.name][name], values[low:high])
        if reason := unsound(start, piece, header.n_params):
            bad.append(reason)

    ring = memoryview(image_buffer((_DEPTH + 1) * _PIECE))

    def place(start: int, end: int) -> memoryview:
        at = start % len(ring)
        return ring[at : at + end - start]

    fd, size = _open(path)
    try:
        digest = _scan(fd, size, place, look)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(fd)
    regions = {name: _merged([tensor[name] for tensor in tensors.values()]) for name in REGIONS}
    for region in (*regions.values(), *(region for tensor in tensors.values() for region in tensor.values())):
        region.norm = math.sqrt(region.norm)
    problem = bad[0] if bad else None
    return Facts(header.step, header.n_params, size, digest, regions, problem, {} if shape is None else tensors)


def choose(run: RunDir, image: memoryview, *, n_params: int) -> Choice | None:
    """Loads the newest valid checkpoint of `run` into `image`; None when there is nothing of that name.

    NoCheckpoint, with every candidate and reason, when there are some and none is valid. A file without a
    digest line is used (`has_digest_line` tells); one that the line contradicts is not.
    """
    candidates = run.checkpoints()
    lines: dict[str, str] = {}
    with suppress(OSError):  # an unreadable list is as good as none: the caller warns of each missing line
        lines = digests.read(run.sums)
    passed: list[Passed] = []
    for step, path in reversed(candidates.items()):
        line = lines.get(path.name)
        try:
            digest = load(path, image, step=step, n_params=n_params, digest=line)
        except Invalid as reason:
            passed.append(Passed(path, str(reason)))
        else:
            return Choice(step, path, digest, line is not None, passed)
    if not passed:
        return None
    raise NoCheckpoint(
        "no checkpoint of this run can be used",
        where=str(run.root),
        found="\n".join(f"{p.path.name}: {p.reason}" for p in passed),
        expected=f"one valid file of {n_params} parameters",
        todo="bring one back from a copy, or start a new run with `andrea init RUN --from FILE.bin`",
    )


def set_aside(path: Path) -> Path:
    """Renames a file that was passed over to `NAME.bad`, `.bad2`, ...; nothing is overwritten or deleted."""
    target = aside(path)
    path.rename(target)
    fsync_dir(path.parent)
    return target


def _unreadable(path: Path, error: OSError) -> Invalid | Refused:
    """What the system's refusal means: the file is no good, or this process is short of something and it may be."""
    if error.errno in _SHORTAGE:
        return Refused(
            "a checkpoint cannot be read now",
            where=str(path),
            found=error.strerror or str(error),
            expected="file descriptors and memory to read it with",
            todo="raise the limit, or end what uses it up, then start again; nothing was set aside",
        )
    return Invalid(f"cannot be read: {error.strerror}")


def _open(path: Path) -> tuple[int, int]:
    """Descriptor and size of a regular file; O_NONBLOCK so that a FIFO of that name hangs nobody."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(path, error) from error
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise Invalid("is a folder or a device, expected a regular file")
    return fd, status.st_size


def _header(start: bytes, size: int) -> Header:
    if len(start) < HEADER.size:
        raise Invalid(f"{size} bytes, expected at least the {HEADER.size} of the header")
    step, n_params = HEADER.unpack(start)
    if step < 0 or not 0 < n_params <= MAX_PARAMS:
        raise Invalid(f"the header says step {step} and {n_params} parameters, expected positive numbers")
    if size != file_size(n_params):
        raise Invalid(f"{size} bytes, expected {file_size(n_params)} for the header's {n_params} parameters")
    return Header(step, n_params)


def _scan(fd: int, size: int, place: Callable[[int, int], memoryview], look: Callable[[int, memoryview], None]) -> str:
    """Reads the file once, in pieces, into the buffers that `place(start, end)` names; returns the SHA-256.

    One thread hashes and one calls `look(start, piece)`, both in file order, while this one reads on. At most
    `_DEPTH` pieces are out at a time, so a ring of `_DEPTH + 1` is never overwritten too early.
    """
    digest = hashlib.sha256()
    out: deque[tuple[Future[None], Future[None]]] = deque()
    direct = set_direct(fd, True)
    with ThreadPoolExecutor(1) as hasher, ThreadPoolExecutor(1) as looker:
        for start in range(0, size, _PIECE):
            piece = place(start, min(start + _PIECE, size))
            direct = _fill(fd, piece, start, direct)
            out.append((hasher.submit(digest.update, piece), looker.submit(look, start, piece)))
            if len(out) > _DEPTH:
                for work in out.popleft():
                    work.result()
        for pair in out:
            for work in pair:
                work.result()
    return digest.hexdigest()


def _fill(fd: int, piece: memoryview, start: int, direct: bool) -> bool:
    """Reads all of `piece` from `start` on; returns whether O_DIRECT is still on. Invalid at an early end."""
    done = 0
    while done < len(piece):
        rest = piece[done:]
        if direct and (done % BLOCK or len(rest) < BLOCK):
            direct = not set_direct(fd, False)
        try:
            count = os.preadv(fd, [rest[: len(rest) - len(rest) % BLOCK] if direct else rest], start + done)
        except OSError as error:
            if not direct or error.errno != errno.EINVAL:
                raise
            direct = not set_direct(fd, False)
            continue
        if count == 0:
            raise Invalid(f"ends at byte {start + done} while it is read")
        done += count
    return direct


def _values(start: int, piece: memoryview, n_params: int) -> list[tuple[str, int, Values]]:
    """The float32 values in `piece`, which begins at byte `start` of the file, cut where regions meet.

    Each with its region's name and the index of its first value in there.
    """
    skip = max(0, HEADER.size - start)
    first = (start + skip - HEADER.size) // 4
    values = np.frombuffer(piece[skip:], dtype="<f4")
    cuts = []
    for i, name in enumerate(REGIONS):
        low, high = max(first, i * n_params), min(first + len(values), (i + 1) * n_params)
        if low < high:
            cuts.append((name, low - i * n_params, values[low - first : high - first]))
    return cuts


def unsound(start: int, piece: memoryview, n_params: int) -> str | None:
    """Names the first value that no training state may hold; None when all are finite and v >= 0.

    `piece`: bytes of a file of `n_params` parameters, from byte `start` on; both are multiples of 4.
    """
    for name, index, values in _values(start, piece, n_params):
        floor = 0.0 if name == "v" else -math.inf
        with np.errstate(invalid="ignore"):
            low, high = float(values.min()), float(values.max())
        if math.isfinite(low) and math.isfinite(high) and low >= floor:
            continue
        at = int(np.argmax(~np.isfinite(values) | (values < floor)))
        expected = "a finite value, zero or more" if name == "v" else "a finite value"
        return f"{name}[{index + at}] is {float(values[at])}, expected {expected}"
    return None


def _measure(region: Region, values: Values) -> None:
    """Adds `values` to the region's extremes and to its sum of squares (in `norm` until the end)."""
    sound = np.isfinite(values)
    finite = values if sound.all() else values[sound]
    region.not_finite += len(values) - len(finite)
    if len(finite):
        region.low = min(region.low, float(finite.min()))
        region.high = max(region.high, float(finite.max()))
        region.norm += float(np.sum(np.square(finite, dtype=np.float64)))


def _merged(regions: list[Region]) -> Region:
    """What all of them are together, norms still as sums of squares."""
    return Region(
        min(region.low for region in regions),
        max(region.high for region in regions),
        math.fsum(region.norm for region in regions),
        sum(region.not_finite for region in regions),
    )
