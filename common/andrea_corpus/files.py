"""The raw bytes of a source, unpacked if its name ends in .gz or .zst, in chunks of bounded size.

Every error names the file. Writes nothing but, for a packed file that must be read out of order, an unnamed temporary
one. Imports `zstandard` when a .zst is read, and `andrea_rundir.faults`.
"""

from __future__ import annotations

import gzip
import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from andrea_corpus.text import PIECE
from andrea_rundir.faults import BadConfig, raise_shortage

_ZST_INPUT = 512
"""Packed bytes taken at once: a block of 128 KiB can come from 4 bytes, so this keeps a chunk under 16 MiB."""

Told = Callable[[int], None]
"""Is told how many bytes of the file, as it lies on disk, have been read."""


def chunks(path: Path, told: Told) -> Iterator[bytes]:
    """The content of a regular file, unpacked. BadConfig: it is none, cannot be read, or is not whole."""
    unpack = {".gz": _gz, ".zst": _zst}.get(path.suffix.lower(), _plain)
    try:
        with open_regular(path) as file:
            for chunk in unpack(file):
                told(file.tell())
                yield chunk
    except EOFError:
        raise unusable(path, "it is cut short: the packed data has no end", whole=True) from None
    except gzip.BadGzipFile as error:
        raise unusable(path, f"not a whole gzip file: {error}", whole=True) from None
    except (zlib.error, _NotZst) as error:
        raise unusable(path, f"not a whole {path.suffix} file: {error}", whole=True) from None
    except OSError as error:
        raise_shortage(error)
        raise unusable(path, error.strerror or str(error)) from error


@contextmanager
def seekable(path: Path, told: Told) -> Iterator[IO[bytes]]:
    """The content as a file that can be read in any order."""
    if path.suffix.lower() not in (".gz", ".zst"):
        with open_regular(path) as file:
            yield file
        return
    with tempfile.TemporaryFile() as file:
        for chunk in chunks(path, told):
            file.write(chunk)
        file.seek(0)
        yield file


def open_regular(path: Path) -> IO[bytes]:
    """The file, unbuffered; BadConfig when it is not a regular one. O_NONBLOCK: a FIFO hangs nobody."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    file = open(fd, "rb", buffering=0)  # noqa: SIM115 - the caller closes it
    try:
        check_regular(path, os.fstat(fd))
    except BadConfig:
        file.close()
        raise
    return file


def check_regular(path: Path, status: os.stat_result) -> None:
    """BadConfig unless it is a regular file."""
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
        raise unusable(path, kinds.get(stat.S_IFMT(status.st_mode), "a device"))


def unusable(path: Path, found: str, *, place: str = "", whole: bool = False) -> BadConfig:
    """The fault for a source that cannot be used; `place` is a line, row or byte in it."""
    return BadConfig(
        "a source cannot be used",
        where=f"{path}, {place}" if place else str(path),
        found=found,
        expected="a whole file" if whole else "a readable file with text in it",
        todo="mend the file, or `path` in the policy",
    )


class _NotZst(Exception):
    pass


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(PIECE):
        yield chunk


def _gz(file: IO[bytes]) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as unpacked:
        while chunk := unpacked.read(PIECE):
            yield chunk


def _zst(file: IO[bytes]) -> Iterator[bytes]:
    """Frame after frame; `stream_reader` would take a file that is cut short for a whole one."""
    import zstandard

    frame, data, waiting, size = None, b"", [], 0
    while data or (data := file.read(_ZST_INPUT)):
        frame = frame or zstandard.ZstdDecompressor().decompressobj()
        try:
            chunk = frame.decompress(data)
        except zstandard.ZstdError as error:
            raise _NotZst(str(error).removeprefix("zstd decompress error: ")) from None
        data = frame.unused_data
        if frame.eof:
            frame = None
        waiting.append(chunk)
        size += len(chunk)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
    if frame is not None:
        raise EOFError
