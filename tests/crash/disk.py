"""What a file system may have kept when the power went: the model.

A deed is in memory first. A file is made of 512-byte sectors; each of them, and the size, is on the disk as it was at
some moment between the file's last completed sync and the cut, every one for itself. A sector that was never written
back, in a file that had grown, holds zeros or garbage. A change of names is on the disk or not, whole, each for itself
and independent of any file's content, unless a sync of its folder was completed after it. A sync of a file says
nothing of its name. That is what POSIX leaves open and weaker than any one file system (Pillai et al., "All File
Systems Are Not Created Equal", OSDI 2014). Assumed is what disks promise: a sector is written whole or not at all,
synced sectors stay, and a completed sync is one that the device has obeyed.

A sync counts as completed only once its process has been seen to do something after it: until then nobody can have
relied on it, and the disk may have been slow. So one recording stands for all speeds of the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from crash.ops import ROOT, Names, Op, Recording, Resize, Sync, Write

SECTOR = 512

Tree = dict[str, bytes | None]
"""Path to content; None is a folder."""


@dataclass
class File:
    """`versions`: as it was at its last completed sync, then after every deed since. `ends`: when those were done."""

    versions: list[bytes] = field(default_factory=lambda: [b""])
    ends: list[int] = field(default_factory=lambda: [-1])
    touched: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """First and last-plus-one byte that a deed changed."""

    @property
    def dirty(self) -> bool:
        """Whether a cut may leave it in more than one way."""
        return len(self.versions) > 1

    def sectors(self) -> list[int]:
        """The numbers of the sectors that are not known to be on the disk, in order."""
        found: set[int] = set()
        for start, end in self.touched[1:]:
            found.update(range(start // SECTOR, -(-end // SECTOR)))
        return sorted(found)


@dataclass
class Folder:
    """`durable`: its names at its last completed sync; `pending`: every change since, with when it was done."""

    durable: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[Names, int]] = field(default_factory=list)


class Disk:
    """Memory and disk after the deeds given so far."""

    def __init__(self, recording: Recording) -> None:
        self.files: dict[int, File] = {}
        self.folders: dict[int, Folder] = {node: Folder() for node in recording.folders}
        self._syncing: dict[int, list[tuple[int, int]]] = {}

    def do(self, op: Op) -> None:
        """One deed more."""
        for node, begin in self._syncing.pop(op.process, ()):
            self._completed(node, begin)
        match op.deed:
            case Names():
                self.folders[op.deed.folder].pending.append((op.deed, op.end))
                for _, named in op.deed.changes:
                    if named is not None and named not in self.folders:
                        self.files.setdefault(named, File())
            case Write(node, at, data):
                before = self.files[node].versions[-1]
                after = before[:at].ljust(at, b"\0") + data + before[at + len(data) :]
                self._changed(node, after, (min(at, len(before)), at + len(data)), op.end)
            case Resize(node, size):
                before = self.files[node].versions[-1]
                after = before[:size].ljust(size, b"\0")
                self._changed(node, after, (len(before), size), op.end)
            case Sync(node):
                self._syncing.setdefault(op.process, []).append((node, op.begin))

    def _changed(self, node: int, content: bytes, touched: tuple[int, int], end: int) -> None:
        file = self.files[node]
        file.versions.append(content)
        file.ends.append(end)
        file.touched.append(touched)

    def _completed(self, node: int, begin: int) -> None:
        """What had been done before the sync began is on the disk."""
        if node in self.folders:
            folder = self.folders[node]
            while folder.pending and folder.pending[0][1] < begin:
                _apply(folder.durable, folder.pending.pop(0)[0])
            return
        file = self.files[node]
        count = sum(end < begin for end in file.ends)
        if count > 1:
            del file.versions[: count - 1], file.ends[: count - 1], file.touched[: count - 1]
            file.ends[0] = -1

    def tree(self, content: Callable[[int, File], bytes], kept: Callable[[int, int, int], bool]) -> Tree:
        """What is found after the cut. `content(node, file)` chooses what a dirty file holds, `kept(folder, i, n)`
        whether the i-th of n pending changes in a folder is there."""
        found: Tree = {}
        self._walk(ROOT, "", content, kept, found)
        return found

    def _walk(
        self,
        node: int,
        path: str,
        content: Callable[[int, File], bytes],
        kept: Callable[[int, int, int], bool],
        found: Tree,
    ) -> None:
        folder = self.folders[node]
        names, n = dict(folder.durable), len(folder.pending)
        for i, (change, _) in enumerate(folder.pending):
            if kept(node, i, n):
                _apply(names, change)
        for name, child in sorted(names.items()):
            below = f"{path}/{name}" if path else name
            if child in self.folders:
                found[below] = None
                self._walk(child, below, content, kept, found)
            else:
                file = self.files[child]
                found[below] = content(child, file) if file.dirty else file.versions[0]

    def memory(self) -> Tree:
        """The tree as running programs see it."""
        return self.tree(lambda _, file: file.versions[-1], lambda *_: True)


def _apply(names: dict[str, int], change: Names) -> None:
    """A change whose older half was lost is still a change: what is to be gone is gone, what is to be there is."""
    for name, node in change.changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def mixed(file: File, version: Callable[[int, int], int], size: int, filler: Callable[[int], bytes] | None) -> bytes:
    """A content whose i-th dirty sector, of n, is that of version `version(i, n)`, cut or grown to `size`.

    Where the chosen version had no such bytes yet, `filler(sector)` says what the disk held there; zeros without one.
    """
    found = bytearray(file.versions[0][:size].ljust(size, b"\0"))
    sectors = file.sectors()
    for i, number in enumerate(sectors):
        start, end = number * SECTOR, min((number + 1) * SECTOR, size)
        if start >= size:
            break
        piece = file.versions[version(i, len(sectors))][start:end]
        missing = end - start - len(piece)
        rest = filler(number)[-missing:] if filler is not None and missing else b"\0" * missing
        found[start:end] = piece + rest
    return bytes(found)


def passed(recording: Recording) -> Iterator[Disk]:
    """The same disk before the first deed and after each."""
    disk = Disk(recording)
    yield disk
    for op in recording.ops:
        disk.do(op)
        yield disk
