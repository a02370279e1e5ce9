"""The checkpoint file: int32 step, int32 n, n float32 weights, n of Adam's m, n of Adam's v, little-endian.

Says what a file must be like to be used; `scan` reads one, `loading` chooses one, `inspection` tells of one, and the
trainer's saver writes it. The format carries no checksum, so a file is used only if everything that can be checked is
right: size, step, number of parameters, SHA-256, finite values, v >= 0. Imports the standard library, numpy, our layout
and faults.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from andrea_rundir.faults import SHORTAGE, Refused
from andrea_rundir.layout import MAX_PARAMS

HEADER = struct.Struct("<ii")
"""step, n_params."""

REGIONS = ("w", "m", "v")
"""Weights, then Adam's first and second moments: `n_params` float32 each, in the order of `layout`."""

Values = npt.NDArray[np.float32]


class Invalid(Exception):
    """This file is not a usable checkpoint; the text is the reason, one line with found and expected."""


@dataclass(frozen=True)
class Header:
    """The first eight bytes."""

    step: int
    n_params: int


def file_size(n_params: int) -> int:
    """Bytes of a file of `n_params` parameters."""
    return HEADER.size + 12 * n_params


def read_header(path: Path) -> Header:
    """Step and number of parameters, checked against the file's size; Invalid otherwise."""
    with opened(path) as (fd, size):
        return header_of(os.pread(fd, HEADER.size, 0), size)


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a regular file; what the system refuses, here or inside, is Invalid or Refused.

    O_NONBLOCK so that a FIFO of that name hangs nobody.
    """
    fd = None
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Invalid("is a folder or a device, expected a regular file")
        yield fd, status.st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        if fd is not None:
            os.close(fd)


def _unreadable(path: Path, error: OSError) -> Invalid | Refused:
    """What the system's refusal means: the file is no good, or this process is short of something and it may be."""
    if error.errno in SHORTAGE:
        return Refused(
            "a checkpoint cannot be read now",
            where=str(path),
            found=error.strerror or str(error),
            expected="file descriptors and memory to read it with",
            todo="raise the limit, or end what uses it up, then start again; nothing was set aside",
        )
    return Invalid(f"cannot be read: {error.strerror}")


def header_of(start: bytes, size: int) -> Header:
    """What the first bytes of a file of `size` bytes say; Invalid where they cannot be right."""
    if len(start) < HEADER.size:
        raise Invalid(f"{size} bytes, expected at least the {HEADER.size} of the header")
    step, n_params = HEADER.unpack(start)
    if step < 0 or not 0 < n_params <= MAX_PARAMS:
        raise Invalid(f"the header says step {step} and {n_params} parameters, expected positive numbers")
    if size != file_size(n_params):
        raise Invalid(f"{size} bytes, expected {file_size(n_params)} for the header's {n_params} parameters")
    return Header(step, n_params)


def values_of(start: int, piece: memoryview, n_params: int) -> list[tuple[str, int, Values]]:
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
    for name, index, values in values_of(start, piece, n_params):
        floor = 0.0 if name == "v" else -math.inf
        with np.errstate(invalid="ignore"):
            low, high = float(values.min()), float(values.max())
        if math.isfinite(low) and math.isfinite(high) and low >= floor:
            continue
        at = int(np.argmax(~np.isfinite(values) | (values < floor)))
        expected = "a finite value, zero or more" if name == "v" else "a finite value"
        return f"{name}[{index + at}] is {float(values[at])}, expected {expected}"
    return None
