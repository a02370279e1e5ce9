"""Every state that a power cut may have left, deed by deed: the whole catalogue of fates, and mixtures drawn by number.

Order: for each prefix of the recording first the states that have found faults in other programs (names without data,
data without names, zeros, garbage, torn at a sector), then each waiting change alone lost and alone kept, then draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from crash.disk import SECTOR, Disk, File, Tree, mixed, passed
from crash.ops import Recording
from crash.scenario import TOLD
from crash.truth import Promises, promises

NEAREST = 8
"""Of the waiting changes, so many of the newest are lost and kept one by one."""


@dataclass(frozen=True)
class State:
    """What is found after a cut that came after the first `prefix` deeds, and what had been promised by then; `fate`
    names the choice that made it."""

    prefix: int
    fate: str
    tree: Tree
    promised: Promises

    @property
    def fingerprint(self) -> int:
        """Equal for equal trees."""
        return hash(tuple(sorted(self.tree.items(), key=lambda item: item[0])))


def draw(n: int, *key: int) -> int:
    """A number below n that depends on the key alone."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little") % n


def newest(file: File) -> bytes:
    return file.versions[-1]


def oldest(file: File) -> bytes:
    return file.versions[0]


def grown(file: File) -> bytes:
    """The size is there, the data is not: zeros."""
    return mixed(file, lambda i, n: 0, len(newest(file)), None)


def garbage(file: File) -> bytes:
    """The size is there, and what the disk held before."""
    return mixed(file, lambda i, n: 0, len(newest(file)), _noise)


def head(file: File) -> bytes:
    """Only the first half of the sectors was written, of a file that had its size."""
    return mixed(file, lambda i, n: -1 if i < (n + 1) // 2 else 0, len(newest(file)), None)


def tail(file: File) -> bytes:
    return mixed(file, lambda i, n: -1 if i >= n // 2 else 0, len(newest(file)), _noise)


def striped(file: File) -> bytes:
    return mixed(file, lambda i, n: -1 if i % 2 else 0, len(newest(file)), _noise)


def shortened(file: File) -> bytes:
    """The data that fits, and a size from between."""
    return newest(file)[: len(file.versions[len(file.versions) // 2])]


def _noise(sector: int) -> bytes:
    return bytes(draw(256, sector, i) for i in range(8)) * (SECTOR // 8)


CONTENTS = (newest, oldest, grown, garbage, head, tail, striped, shortened)


def any_mix(key: tuple[int, ...], node: int, file: File) -> bytes:
    """Every sector of a moment of its own, some grown over garbage."""
    last = len(file.versions)
    size = len(file.versions[draw(last, *key, node, 1)])
    filler = _noise if draw(2, *key, node, 2) else None
    return mixed(file, lambda i, n: draw(last, *key, node, 3, i), size, filler)


Content = Callable[[int, File], bytes]
Kept = Callable[[int, int, int], bool]


def fates(disk: Disk, prefix: int, draws: int) -> Iterator[tuple[str, Content, Kept]]:
    """By name: what dirty files hold and which changes of names were kept, as `Disk.tree` asks; some come out equal."""
    for choose in CONTENTS:
        yield f"{choose.__name__} data, all names", partial(_each, choose), _all
        yield f"{choose.__name__} data, no names", partial(_each, choose), _none
    waiting = [(node, i) for node, folder in disk.folders.items() for i in range(len(folder.pending))]
    for place in waiting[-NEAREST:]:
        yield f"of names only change {place}", partial(_each, newest), partial(_only, place)
        yield f"of names all but change {place}", partial(_each, newest), partial(_but, place)
    dirty = [node for node, file in disk.files.items() if file.dirty]
    for lone in dirty[-NEAREST:]:
        for choose in CONTENTS[1:]:
            yield f"{choose.__name__} data of file {lone}", partial(_lone, lone, choose, newest), _all
        yield f"data of file {lone} alone", partial(_lone, lone, newest, oldest), _all
    for number in range(draws):
        yield f"draw {number}", partial(any_mix, (prefix, number)), partial(_drawn, (prefix, number))


def _each(choose: Callable[[File], bytes], node: int, file: File) -> bytes:
    return choose(file)


def _lone(lone: int, its: Callable[[File], bytes], others: Callable[[File], bytes], node: int, file: File) -> bytes:
    return its(file) if node == lone else others(file)


def _all(folder: int, i: int, n: int) -> bool:
    return True


def _none(folder: int, i: int, n: int) -> bool:
    return False


def _only(place: tuple[int, int], folder: int, i: int, n: int) -> bool:
    return (folder, i) == place


def _but(place: tuple[int, int], folder: int, i: int, n: int) -> bool:
    return (folder, i) != place


def _drawn(key: tuple[int, ...], folder: int, i: int, n: int) -> bool:
    return bool(draw(2, *key, folder, i, 4))


def states(
    recording: Recording, *, draws: int = 0, start: int = 0, stop: int | None = None, each: int | None = None
) -> Iterator[State]:
    """The states of the prefixes from `start` up to `stop`, each tree once for what had been promised; with `each` only
    so many of every prefix, others at the next one."""
    promised = promises(recording)
    seen: set[tuple[int, Promises]] = set()
    for prefix, disk in enumerate(passed(recording)):
        if prefix < start:
            continue
        if stop is not None and prefix >= stop:
            break
        found = list(fates(disk, prefix, draws))
        if each is not None:
            found = [found[draw(len(found), prefix, i)] for i in range(each)]
        for name, content, kept in found:
            cut = State(prefix, name, _found(disk, content, kept), promised[prefix])
            if (mark := (cut.fingerprint, cut.promised)) not in seen:
                seen.add(mark)
                yield cut


def state(recording: Recording, prefix: int, fate: str) -> State:
    """The state of that fate after the first `prefix` deeds."""
    for i, disk in enumerate(passed(recording)):
        if i == prefix:
            content, kept = next(found[1:] for found in fates(disk, i, 0) if found[0] == fate)
            return State(prefix, fate, _found(disk, content, kept), promises(recording)[prefix])
    raise ValueError(f"{prefix} deeds")


def _found(disk: Disk, content: Content, kept: Kept) -> Tree:
    tree = disk.tree(content, kept)
    tree.pop(TOLD, None)
    return tree
