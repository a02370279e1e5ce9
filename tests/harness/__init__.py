"""The one way tests drive processes: make a run, start it, hurt it at a chosen instant, compare it with its twin."""

from harness.processes import Trainer, start, start_proxy
from harness.runs import make_run, texts
from harness.twin import audits, entries, figures, probes, sidecar_diff, twin_diff
from harness.waiting import until, wait_checkpoint, wait_step

__all__ = [
    "Trainer",
    "audits",
    "entries",
    "figures",
    "make_run",
    "probes",
    "sidecar_diff",
    "start",
    "start_proxy",
    "texts",
    "twin_diff",
    "until",
    "wait_checkpoint",
    "wait_step",
]
