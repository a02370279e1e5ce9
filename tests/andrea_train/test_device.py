"""A run that is pinned to a card which is not there: it waits, says so, never moves to the CPU."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
import torch

from andrea_rundir.events import read
from andrea_rundir.faults import EXIT_OK, BadConfig, NoDevice
from andrea_train import device
from harness import make_run, start, until

GONE = "cuda:63"


def never(what: str) -> None:
    pytest.fail(f"it waited: {what}")


def test_the_cpu_answers_at_once() -> None:
    assert device.wait_for("cpu", never, threading.Event()) == torch.device("cpu")


def test_a_run_waits_for_its_card_and_can_be_stopped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", changes={"run": {"device": GONE, "precision": "fp32"}})
    with start(run) as trainer:
        until("it waits", lambda: f"waiting for {GONE}" in trainer.said())
        assert trainer.stop() == EXIT_OK
    kinds = [event["event"] for event in read(run.events)]
    assert "step" not in kinds and kinds[-1] == "stop" and not run.checkpoints()


def test_it_gives_up_in_the_end_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(device, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(device, "POLL_SECONDS", 0.1)
    with pytest.raises(NoDevice, match="did not answer for") as raised:
        device.wait_for(GONE, said.append, threading.Event())
    assert said and f"waiting for {GONE}" in said[0] and "CUDA" in str(raised.value)


def test_a_card_that_answers_others_only_needs_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a start that failed early: the service manager starts the run anew at once."""
    monkeypatch.setattr(device, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(device.sys, "executable", shutil.which("true"))
    with pytest.raises(NoDevice, match="though it answers other processes"):
        device.wait_for(GONE, lambda _: None, threading.Event())


def test_a_stop_ends_the_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    stop.set()
    assert device.wait_for(GONE, lambda _: None, stop) is None


def test_a_device_that_is_not_pinned_is_refused() -> None:
    with pytest.raises(BadConfig, match="not pinned"):
        device.wait_for("auto", never, threading.Event())
