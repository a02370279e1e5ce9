"""The learning rate as a pure function of the step: linear warm-up, then a cosine down to `min_lr`.

Imports the standard library and `andrea_rundir.sections`.
"""

from __future__ import annotations

import math

from andrea_rundir.sections import OptimizerConfig


def learning_rate(step: int, config: OptimizerConfig) -> float:
    """The rate of update number `step` (1 is the first).

    Cosine decay as in Loshchilov & Hutter 2017 (arXiv 1608.03983), without restarts; past `max_steps` it stays at
    `min_lr`, so a run that is prolonged by hand goes on calmly.
    """
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if step >= config.max_steps:
        return config.min_lr
    progress = (step - config.warmup_steps) / (config.max_steps - config.warmup_steps)
    return config.min_lr + 0.5 * (config.lr - config.min_lr) * (1.0 + math.cos(math.pi * progress))
