"""The checkpoints that a run has, wherever they lie: in the run itself, in `kept/`, in `archive/`.

Reads only. Standard library and `andrea_rundir.names`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from andrea_rundir.names import RunDir, checkpoint_step


def files(run: RunDir) -> Iterator[tuple[int, Path]]:
    """Step and path of everything that has a checkpoint's name, where checkpoints lie."""
    yield from run.checkpoints().items()
    for folder in (run.kept, *sorted(run.archive.glob("step_*"))):
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                step = checkpoint_step(path.name)
                if step is not None:
                    yield step, path


def stock(run: RunDir) -> dict[int, list[Path]]:
    """Files by step, steps ascending; of each the one that the run would go on from first."""
    found: dict[int, list[Path]] = {}
    for step, path in files(run):
        if path.is_file():
            found.setdefault(step, []).append(path)
    return dict(sorted(found.items()))


def nearest(steps: Iterable[int], step: int) -> str:
    """Where a step is not to be had: what is to be had around it, in words."""
    near = sorted(steps, key=lambda other: (abs(other - step), other))[:3]
    if len(near) > 1:
        return "the nearest are " + ", ".join(str(s) for s in sorted(near))
    return f"only {near[0]}" if near else "no checkpoint at all"
