"""One entry of the history, made of a step event, and the smoothed loss that it carries.

Pure. Standard library and types of this package: the command line shows the smoothed loss without numpy.
"""

from __future__ import annotations

from andrea_rundir.events import Event
from andrea_rundir.lossfile import Entry

FIGURES = ("loss", "arms", "lr", "grad_norm", "tokens", "policy", "flags")
"""What makes two records of a step equal; clocks do not."""

EMA_KEEP = 0.99
"""Of the smoothed loss, from one step to the next: it looks back about 100 steps."""


def smooth(before: float | None, loss: float | None) -> float | None:
    """The smoothed loss after one more step (exponential moving average); a step without a loss leaves it."""
    if loss is None:
        return before
    return loss if before is None else EMA_KEEP * before + (1 - EMA_KEEP) * loss


def entry_of(event: Event, attempt: int, before: float | None) -> Entry:
    """The entry of a step event; `before` is the smoothed loss of the step before. KeyError for no step event."""
    return {
        "step": event["step"],
        "attempt": attempt,
        "loss": event["loss"],
        "ema": smooth(before, event["loss"]),
        "arms": event["arms"],
        "lr": event["lr"],
        "grad_norm": event["grad_norm"],
        "tokens": event["tokens"],
        "seconds": event["seconds"],
        "policy": event["policy"],
        "flags": event["flags"],
        "time": event["time"],
    }
