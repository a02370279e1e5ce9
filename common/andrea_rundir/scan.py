"""One pass over a checkpoint file: read, hashed and looked at beside each other, in a few pieces of memory.

So verifying costs little more than the slowest of the three. Writes nothing. Imports the standard library, our
checkpoint and publish.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from andrea_rundir.checkpoint import Invalid
from andrea_rundir.publish import BLOCK, image_buffer, set_direct

_PIECE = 4 << 20
_DEPTH = 4
"""Pieces that may wait for hashing and looking while the next is read."""


Look = Callable[[int, memoryview], None]
"""Is shown each piece of a file, in order: where it begins, and its bytes, which are there until the call returns."""


def scan(fd: int, size: int, look: Look) -> str:
    """Reads the file once; returns the SHA-256 of its bytes in hex.

    One thread hashes and one looks, both in file order, while this one reads on. At most `_DEPTH` pieces are out at a
    time, so a ring of `_DEPTH + 1` is never overwritten too early.
    """
    ring = memoryview(image_buffer((_DEPTH + 1) * _PIECE))
    digest = hashlib.sha256()
    out: deque[tuple[Future[None], Future[None]]] = deque()
    direct = set_direct(fd, True)
    with ThreadPoolExecutor(1) as hasher, ThreadPoolExecutor(1) as looker:
        for start in range(0, size, _PIECE):
            piece = ring[start % len(ring) :][: min(_PIECE, size - start)]
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
