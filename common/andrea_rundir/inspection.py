"""What a checkpoint file says about itself, and whether a run would use it: the loader's checks in bounded memory.

Writes nothing. Imports the standard library, numpy, our checkpoint, scan, layout and names.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from andrea_rundir.checkpoint import REGIONS, Values, opened, read_header, unsound, values_of
from andrea_rundir.layout import Parameter, Shape, parameters
from andrea_rundir.names import checkpoint_step
from andrea_rundir.scan import scan


@dataclass
class Region:
    """One third of the values, or a matrix's part of it: extremes and L2 norm of the finite ones, and how many are
    not finite."""

    low: float = math.inf
    high: float = -math.inf
    norm: float = 0.0
    not_finite: int = 0


@dataclass(frozen=True)
class Facts:
    """What a file says about itself. `problem` is why a run would not use it, None if it would."""

    step: int
    n_params: int
    size: int
    digest: str
    regions: dict[str, Region]
    problem: str | None
    tensors: dict[str, dict[str, Region]]
    """The same for every matrix, by its name and REGIONS; empty where the shape is not known."""

    @property
    def finite(self) -> bool:
        """Whether all values are."""
        return all(region.not_finite == 0 for region in self.regions.values())


def inspect(path: Path, shape: Shape | None = None) -> Facts:
    """The same verification in bounded memory, for a reader; Invalid when size and header do not agree.

    `shape`: of the model, with as many parameters, so that each matrix can be told of.
    """
    header = read_header(path)
    parts = [Parameter("", (header.n_params, 1), 0)] if shape is None else parameters(shape)
    if parts[-1].offset + parts[-1].size != header.n_params:
        raise ValueError(f"a shape of other than {header.n_params} parameters")
    tensors = {part.name: {name: Region() for name in REGIONS} for part in parts}
    starts = [part.offset for part in parts]
    bad: list[str] = []
    if checkpoint_step(path.name) not in (None, header.step):
        bad.append(f"the header says step {header.step}, the name {path.name}")

    def look(start: int, piece: memoryview) -> None:
        for name, first, values in values_of(start, piece, header.n_params):
            for part in parts[bisect_right(starts, first) - 1 : bisect_left(starts, first + len(values))]:
                low, high = max(0, part.offset - first), part.offset + part.size - first
                _measure(tensors[part.name][name], values[low:high])
        if reason := unsound(start, piece, header.n_params):
            bad.append(reason)

    with opened(path) as (fd, size):
        digest = scan(fd, size, look)
    regions = {name: _merged([tensor[name] for tensor in tensors.values()]) for name in REGIONS}
    for region in (*regions.values(), *(region for tensor in tensors.values() for region in tensor.values())):
        region.norm = math.sqrt(region.norm)
    problem = bad[0] if bad else None
    return Facts(header.step, header.n_params, size, digest, regions, problem, {} if shape is None else tensors)


def _measure(region: Region, values: Values) -> None:
    """Adds `values` to the region's extremes and to its sum of squares (in `norm` until the end)."""
    sound = np.isfinite(values)
    finite = values if sound.all() else values[sound]
    region.not_finite += len(values) - len(finite)
    if len(finite):
        region.low = min(region.low, float(finite.min()))
        region.high = max(region.high, float(finite.max()))
        region.norm += float(np.sum(np.square(finite, dtype=np.float64)))


def _merged(regions: list[Region]) -> Region:
    """What all of them are together, norms still as sums of squares."""
    return Region(
        min(region.low for region in regions),
        max(region.high for region in regions),
        math.fsum(region.norm for region in regions),
        sum(region.not_finite for region in regions),
    )
