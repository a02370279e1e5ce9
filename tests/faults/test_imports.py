"""Nothing is imported once a run is at work: descriptors may be short by then, and an upgrade may have replaced what
would be imported."""

from __future__ import annotations

import signal
from collections.abc import Callable

from andrea_cli.main import main
from andrea_rundir.names import RunDir
from faults.pair import HALFWAY, PATIENT, end
from harness import start, start_proxy, until

Make = Callable[..., RunDir]

AT_WORK: dict[str, object] = {"call": 1, "do": "IMPORTS"}


def test_all_is_imported_before_the_first_save_and_the_first_turn(make: Make) -> None:
    """Over checkpoints, audits, probes, a signal and a pivot."""
    run = make("imports", {**PATIENT, "probe": {"every": 20}})
    watched = [{**AT_WORK, "at": "andrea_train.loop:Loop.begin"}, HALFWAY]
    with (
        start_proxy(run, hurt=[{**AT_WORK, "at": "andrea_proxy.desk:Desk.turn"}]) as proxy,
        start(run, hurt=watched) as trainer,
    ):
        until("the trainer stands still", trainer.frozen)
        assert main(["pivot", str(run.root), "--cap", "prose=0.3", "--no-wait"]) == 0
        until("it is claimed", run.policy_pending.exists)
        trainer.signal(signal.SIGCONT)
        until("the pivot is finished", lambda: not run.policy_pending.exists())
        end(run, trainer, proxy)
    assert run.archive.exists()
    for process in (trainer, proxy):
        late = [line for line in process.said().splitlines() if "imported late" in line]
        assert late == ["imported late: __hello__"]
