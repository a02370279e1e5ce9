"""The one way tests drive processes: make a run, start it, hurt it at a chosen instant, compare it with its twin."""

from harness.processes import Trainer, start
from harness.runs import make_run, texts
from harness.twin import audits, figures, probes, twin_diff
from harness.waiting import until, wait_checkpoint, wait_step

__all__ = [
    "Trainer",
    "audits",
    "figures",
    "make_run",
    "probes",
    "start",
    "texts",
    "twin_diff",
    "until",
    "wait_checkpoint",
    "wait_step",
]
