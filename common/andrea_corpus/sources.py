"""From an arm's `path` to the files it means, each checked to be one that can be read. Writes nothing."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from andrea_corpus.files import check_regular, unusable
from andrea_corpus.source import ENDINGS, format_of
from andrea_rundir.faults import BadConfig, raise_shortage
from andrea_rundir.policy import Arm


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
            raise_shortage(error)
            raise unusable(Path(error.filename or given), str(error.strerror)) from error
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
        return [file for file in _walk(path, []) if format_of(file, arm)]
    matches = sorted(glob.glob(given, recursive=True)) if glob.has_magic(given) and not path.exists() else [given]  # noqa: PTH207
    files = [Path(match) for match in matches if match == given or not Path(match).is_dir()]
    for file in files:
        if not os.path.exists(file):  # noqa: PTH110 - unlike Path's, it takes a refusal for an answer
            raise unusable(file, f"No such file or directory, for arm {name}")
        if not format_of(file, arm):
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
        raise unusable(folder, "a link to a folder that it lies in")
    for child in sorted(folder.iterdir()):
        if not child.name.startswith("."):
            if child.is_dir():
                yield from _walk(child, [*above, here])
            else:
                yield child


def _expected(arm: Arm) -> str:
    return (
        f"files ending in {', '.join(ENDINGS)}, or those packed as .gz or .zst"
        if arm.format == "auto"
        else "readable files"
    )


def _identify(path: Path) -> tuple[int, int]:
    """Device and inode of a file that is regular, not empty, and can be opened for reading; else BadConfig."""
    try:
        status = path.stat()
        check_regular(path, status)
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        raise_shortage(error)
        raise unusable(path, str(error.strerror)) from error
    if not status.st_size:
        raise unusable(path, "an empty file")
    return status.st_dev, status.st_ino
