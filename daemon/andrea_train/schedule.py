"""The learning rate as a pure function of the step: linear warm-up, then a cosine down to `min_lr`.

Standard library only.
"""

from __future__ import annotations

import math


def learning_rate(step: int, *, peak: float, floor: float, warmup: int, total: int) -> float:
    """The rate of update number `step` (1 is the first).

    Cosine decay as in Loshchilov & Hutter 2017 (arXiv 1608.03983), without restarts; past `total` it stays at
    `floor`, so a run that is prolonged by hand goes on calmly.
    """
    if step <= warmup:
        return peak * step / warmup
    if step >= total:
        return floor
    progress = (step - warmup) / (total - warmup)
    return floor + 0.5 * (peak - floor) * (1.0 + math.cos(math.pi * progress))
