"""Few descriptors for a whole life: refused in words at the start, waited for in words, or no difference."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from faults.pair import LAST, PATIENT, end, finish, is_twin, recorded
from faults.table import DESCRIPTORS
from harness import start, start_proxy, until

Make = Callable[..., RunDir]

FEW = DESCRIPTORS if os.environ.get("FAULTS") == "all" else DESCRIPTORS[:1]
WAITS = "waits: Too many open files"


@pytest.mark.parametrize("who", ["trainer", "proxy"])
@pytest.mark.parametrize("most", FEW)
def test_few_descriptors(who: str, most: int, make: Make, whole: RunDir) -> None:
    run = make("few", PATIENT)
    few = {who: ["prlimit", f"--nofile={most}"]}
    with start_proxy(run, under=few.get("proxy")) as proxy, start(run, under=few.get("trainer")) as trainer:
        limited = {"trainer": trainer, "proxy": proxy}[who]
        until("an end", lambda: any(p.process.poll() is not None for p in (proxy, trainer)) or WAITS in proxy.said())
        if trainer.process.poll() == 0:
            end(run, trainer, proxy)
        else:
            assert limited.process.poll() in (1, None), limited.said()
            assert "Too many open files" in limited.said() and "Traceback" not in limited.said()
            assert recorded(run) == 0, "refused, or left waiting, after it had begun"
            for process in (trainer, proxy):
                assert process.process.poll() is not None or process.stop() == 0, process.said()
    if recorded(run) == 0:
        finish(run)
    is_twin(run, whole)


def test_a_trainer_that_is_short_of_descriptors_later_on_says_what_is_lost(make: Make, whole: RunDir) -> None:
    """With ten it begins and cannot save."""
    run = make("later", PATIENT)
    with start_proxy(run) as proxy, start(run, under=["prlimit", "--nofile=10"]) as trainer:
        assert trainer.wait(300) == 1, trainer.said()
        assert proxy.stop() == 0, proxy.said()
    assert f"steps 1 to {LAST} are lost" in trainer.said() and "Traceback" not in trainer.said()
    assert list(read(run.events))[-1] | {"time": ""} == {"event": "stop", "time": "", "step": 0, "reason": "unsaved"}
    finish(run)
    is_twin(run, whole)
