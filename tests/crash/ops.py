"""What was done to a directory tree, in the order in which it was done: the words that the simulator speaks.

A file or folder is a number (a node), since names come and go. Folder 0 is the root of all that is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

ROOT = 0


@dataclass(frozen=True)
class Write:
    """`data` was put into a file at byte `at`; the file grows where it must."""

    node: int
    at: int
    data: bytes


@dataclass(frozen=True)
class Resize:
    """A file was cut, or grown by zeros, to `size` bytes."""

    node: int
    size: int


@dataclass(frozen=True)
class Sync:
    """fsync or fdatasync of a file, or fsync of a folder."""

    node: int


@dataclass(frozen=True)
class Names:
    """Names in one folder changed at once: to a node, or to nothing. A rename is two of them."""

    folder: int
    changes: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True)
class End:
    """The process is no more."""


Deed = Write | Resize | Sync | Names | End


@dataclass(frozen=True)
class Op:
    """One deed. `begin` and `end` count events of the whole recording: what ended before `begin` had been done before.

    `process` did it; `text` says it for people.
    """

    deed: Deed
    process: int
    begin: int
    end: int
    text: str


@dataclass(frozen=True)
class Recording:
    """All that was done below a folder that was empty at first. `folders` are the nodes that are folders."""

    ops: list[Op]
    folders: frozenset[int]
