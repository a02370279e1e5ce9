"""The checkpoints that a run has, wherever they lie: in the run itself, in `kept/`, in `archive/`.

Reads only. Standard library and `andrea_rundir.names`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from andrea_rundir.names import RunDir, checkpoint_step


def stock(run: RunDir) -> dict[int, list[Path]]:
    """Files by step, steps ascending; of each the one that the run would go on from first."""
    kept = sorted(run.kept.iterdir()) if run.kept.is_dir() else []
    archived = sorted(run.archive.glob("step_*/step_*.bin"))
    found: dict[int, list[Path]] = {}
    for path in (*run.checkpoints().values(), *kept, *archived):
        step = checkpoint_step(path.name)
        if step is not None and path.is_file():
            found.setdefault(step, []).append(path)
    return dict(sorted(found.items()))


def nearest(steps: Iterable[int], step: int) -> str:
    """Where a step is not to be had: what is to be had around it, in words."""
    near = sorted(steps, key=lambda other: (abs(other - step), other))[:3]
    if len(near) > 1:
        return "the nearest are " + ", ".join(str(s) for s in sorted(near))
    return f"only {near[0]}" if near else "no checkpoint at all"
