"""From an arm's `path` to text: which files it means, and their documents as a stream of normalised UTF-8.

Normalised: valid UTF-8, no byte order mark at the start, CRLF made LF; nothing else is touched. A stream is
made of pieces of at most 64 KiB, so memory does not grow with a file or with a line. Every error names the file,
and the byte where there is one. Writes nothing; imports `andrea_rundir` only.
"""

from __future__ import annotations

import codecs
import glob
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from andrea_rundir.faults import BadConfig
from andrea_rundir.policy import Arm

PIECE = 1 << 16
"""Bytes in the largest piece: small enough for a core's cache and for malloc not to map it anew."""


class Piece(NamedTuple):
    """The next stretch of normalised text; where pieces end depends on the text alone, not on its file."""

    data: bytes
    first: bool
    """It opens a document."""
    replaced: int
    """Characters U+FFFD put in for what was not UTF-8, since the piece before."""


def _text(path: Path, errors: str) -> Iterator[Piece]:
    """The whole file is one document."""
    return _document(_normalised(path, _chunks(path), errors))


READERS: dict[str, Callable[[Path, str], Iterator[Piece]]] = {"text": _text}
"""Formats by name: reader(path, errors) yields the documents of one file."""

ENDINGS = {".txt": "text", ".md": "text"}
"""What `format = "auto"` makes of a file's name."""


def pieces(path: Path, arm: Arm) -> Iterator[Piece]:
    """The documents of one file. BadConfig: it has no text, is not UTF-8, or cannot be read to its end."""
    reader = READERS[ENDINGS[path.suffix.lower()] if arm.format == "auto" else arm.format]
    empty = True
    try:
        for piece in reader(path, arm.errors):
            empty = False
            yield piece
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    if empty:
        raise _unusable(path, "no text in it")


def size(path: Path) -> int:
    """Bytes of a file; BadConfig when it is gone."""
    try:
        return path.stat().st_size
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error


def _chunks(path: Path) -> Iterator[bytes]:
    """The raw bytes of a file, which must not have become anything but a regular one."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb", buffering=0) as file:
        _check_regular(path, os.fstat(fd))
        while chunk := file.read(PIECE):
            yield chunk


def _normalised(path: Path, raw: Iterator[bytes], errors: str) -> Iterator[tuple[bytes, int]]:
    """Chunks of valid UTF-8 without BOM and CRLF, and how many characters were replaced in each."""
    offset, tail, held_cr = 0, b"", b""
    at_start = True
    while True:
        chunk = next(raw, b"")
        data = tail + chunk
        try:
            text, used = codecs.utf_8_decode(data, errors, not chunk)
        except UnicodeDecodeError as error:
            raise BadConfig(
                "a source is not UTF-8",
                where=f"{path}, byte {offset + error.start}",
                found=f"{error.reason}: 0x{data[error.start : error.start + 4].hex()}",
                expected="UTF-8 text",
                todo='convert the file, or set errors = "replace" for this arm',
            ) from error
        valid, replaced = data[:used], 0
        if errors == "replace" and "\ufffd" in text:
            replaced = text.count("\ufffd") - valid.count(b"\xef\xbf\xbd")
            valid = text.encode()
        tail, offset = data[used:], offset + used
        if at_start and valid:
            valid, at_start = valid.removeprefix(codecs.BOM_UTF8), False
        valid = held_cr + valid
        held_cr = b"\r" if chunk and valid.endswith(b"\r") else b""
        if b"\r" in valid:
            valid = valid[: len(valid) - len(held_cr)].replace(b"\r\n", b"\n")
        yield valid, replaced
        if not chunk:
            return


def _document(chunks: Iterator[tuple[bytes, int]]) -> Iterator[Piece]:
    """One document, cut into pieces after the last line end in 64 KiB, else before a character."""
    waiting, first, replaced = b"", True, 0
    for data, n in chunks:
        waiting += data
        replaced += n
        start = 0
        while len(waiting) - start > PIECE:
            end = waiting.rfind(b"\n", start, start + PIECE) + 1 or start + PIECE
            while waiting[end] & 0xC0 == 0x80:
                end -= 1
            yield Piece(waiting[start:end], first, replaced)
            start, first, replaced = end, False, 0
        waiting = waiting[start:]
    if waiting:
        yield Piece(waiting, first, replaced)


def resolve(name: str, arm: Arm) -> list[Path]:
    """The files of one arm: its paths in their order, each file, folder (all below it) or glob sorted by name.

    Each file once. Hidden names in folders are left out, and, with `format = "auto"`, names whose ending says
    no format we read. Raises BadConfig when a path gives no file, or a file is not a readable regular one.
    """
    found: dict[tuple[int, int], Path] = {}
    for given in [arm.path] if isinstance(arm.path, str) else arm.path:
        try:
            files = _expand(name, arm, given)
        except OSError as error:
            raise _unusable(Path(error.filename or given), str(error.strerror)) from error
        if not files:
            raise BadConfig(
                f"arm {name} has a source without files",
                where=given,
                found="nothing that fits",
                expected=_expected(arm),
                todo="mend `path` in the policy",
            )
        for file in files:
            found.setdefault(_identify(file), file)
    return list(found.values())


def resolve_all(arms: Mapping[str, Arm]) -> dict[str, list[Path]]:
    """The files of every arm, by arm name; BadConfig when a file stands under two arms."""
    resolved = {name: resolve(name, arms[name]) for name in sorted(arms)}
    owners: dict[tuple[int, int], tuple[str, Path]] = {}
    for name, files in resolved.items():
        for file in files:
            other, path = owners.setdefault(_identify(file), (name, file))
            if other != name:
                raise BadConfig(
                    "a file stands under two arms",
                    where=str(file) if file == path else f"{file} (the same file as {path})",
                    found=f"arms {other} and {name}",
                    expected="one arm a file",
                    todo="mend `path` of one of them in the policy",
                )
    return resolved


def _expand(name: str, arm: Arm, given: str) -> list[Path]:
    """The files that one `path` means, sorted."""
    path = Path(given)
    if path.is_dir():
        return [file for file in _walk(path, []) if arm.format != "auto" or _readable_ending(file)]
    matches = sorted(glob.glob(given, recursive=True)) if glob.has_magic(given) and not path.exists() else [given]  # noqa: PTH207
    files = [Path(match) for match in matches if match == given or not Path(match).is_dir()]
    for file in files:
        if arm.format == "auto" and not _readable_ending(file):
            raise BadConfig(
                f"arm {name}: the format of a file cannot be told from its name",
                where=str(file),
                found=file.suffix or "no ending",
                expected=_expected(arm),
                todo='rename it, or set format = "text" for this arm',
            )
    return files


def _walk(folder: Path, above: list[tuple[int, int]]) -> Iterator[Path]:
    """All files below a folder, sorted, hidden names left out; links are followed, a loop is an error."""
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise _unusable(folder, "a link to a folder that it lies in")
    for child in sorted(folder.iterdir()):
        if not child.name.startswith("."):
            if child.is_dir():
                yield from _walk(child, [*above, here])
            else:
                yield child


def _readable_ending(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _expected(arm: Arm) -> str:
    return "files ending in " + ", ".join(ENDINGS) if arm.format == "auto" else "readable files"


def _identify(path: Path) -> tuple[int, int]:
    """Device and inode of a file that is regular, not empty, and can be opened for reading; else BadConfig."""
    try:
        status = path.stat()
        _check_regular(path, status)
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    if not status.st_size:
        raise _unusable(path, "an empty file")
    return status.st_dev, status.st_ino


def _check_regular(path: Path, status: os.stat_result) -> None:
    """BadConfig unless it is a regular file."""
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
        raise _unusable(path, kinds.get(stat.S_IFMT(status.st_mode), "a device"))


def _unusable(path: Path, found: str) -> BadConfig:
    return BadConfig(
        "a source cannot be used",
        where=str(path),
        found=found,
        expected="a readable file with text in it",
        todo="mend the file, or `path` in the policy",
    )
