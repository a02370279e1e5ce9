"""Every write takes half of what it is given, as POSIX lets it: nothing is lost, doubled or torn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from andrea_rundir.names import RunDir
from faults.pair import PATIENT, end, is_twin
from harness import start, start_proxy
from harness.preload import library


def test_a_write_may_take_less_than_it_is_given(make: Callable[..., RunDir], whole: RunDir, tmp_path: Path) -> None:
    told = tmp_path / "cut"
    shim = library(Path(__file__).with_name("short.c"), tmp_path / "short.so")
    env = {"LD_PRELOAD": str(shim), "SHORT": str(told)}
    run = make("short", PATIENT)
    with start_proxy(run, env=env) as proxy, start(run, env=env) as trainer:
        end(run, trainer, proxy)
    is_twin(run, whole)
    for path, process in ((run.train_lock, trainer), (run.proxy_lock, proxy)):
        assert json.loads(path.read_bytes())["pid"] == process.pid
    cut = [int(line) for line in told.read_text().split()]
    assert len(cut) >= 2 and sum(cut) > 1000, cut  # both of them, and most of their writes
