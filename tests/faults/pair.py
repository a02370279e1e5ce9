"""Trainer and proxy beside each other over a short run, the end of which is compared with that of a quiet one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from andrea_rundir.entries import read
from andrea_rundir.names import RunDir
from harness import Trainer, sidecar_diff, start, start_proxy, twin_diff, until

LAST, CADENCE = 60, 10
PATIENT: dict[str, dict[str, Any]] = {"run": {"plan_wait": 3600.0}, "optimizer": {"max_steps": LAST}}
HALFWAY: dict[str, object] = {"at": "andrea_train.saver:Saver._prune", "call": 3, "do": "STOP"}
"""The trainer stops as if by SIGSTOP once its third checkpoint is announced: it may be at its end before we can."""
STARTERS: dict[str, Callable[..., Trainer]] = {"trainer": start, "proxy": start_proxy}


def recorded(run: RunDir) -> int:
    """The newest step that the proxy has on record."""
    return max((entry["step"] for entry in read(run.loss)), default=0) if run.loss.exists() else 0


def end(run: RunDir, trainer: Trainer, proxy: Trainer) -> None:
    """Both are waited for: the trainer has done all steps, the proxy has recorded them and is told to stop."""
    assert trainer.wait(300) == 0, trainer.said()
    until("all is recorded", lambda: recorded(run) >= LAST or proxy.process.poll() is not None)
    assert proxy.stop() == 0, proxy.said()
    for process in (trainer, proxy):
        assert "Traceback" not in process.said()


def finish(run: RunDir, under: list[str] | None = None) -> Trainer:
    """Both to the end, the trainer under a wrapper; the trainer."""
    with start_proxy(run) as proxy, start(run, under=under) as trainer:
        end(run, trainer, proxy)
    return trainer


def is_twin(run: RunDir, whole: RunDir, *, unsaved: bool = False) -> None:
    """`unsaved`: a checkpoint may be missing, and its audit then names no digest."""
    found = twin_diff(run, whole, LAST, cadence=CADENCE) + sidecar_diff(run, whole)
    assert [line for line in found if not (unsaved and line.startswith("audit"))] == []
