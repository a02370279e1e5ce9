"""The proxy as a process: lock, signals, readiness."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea_cli.main import main
from andrea_rundir.entries import read
from andrea_rundir.lock import probe, read_pidfile
from andrea_rundir.names import RunDir
from andrea_service.presence import look
from harness import start_proxy, until
from harness.dry import DryTrainer, quiet

Make = Callable[..., RunDir]


@pytest.fixture(scope="module")
def run(make: Make) -> RunDir:
    return quiet(make("served", {"optimizer": {"max_steps": 4000}}), 30)


def lines(run: RunDir) -> int:
    return run.plan.read_bytes().count(b"\n")


def test_it_is_ready_heard_and_ended(run: RunDir, tmp_path: Path) -> None:
    """READY comes once all is caught up; SIGUSR1 does nothing; SIGTERM ends it with everything written."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(30)
        with start_proxy(run, env={"NOTIFY_SOCKET": address}) as proxy:
            said = [manager.recv(4096).decode()]
            while said[-1] != "READY=1":
                said.append(manager.recv(4096).decode())
            assert look(run, "proxy").state == "running" and read_pidfile(run.proxy_pid) == proxy.pid
            proxy.signal(signal.SIGUSR1)
            with start_proxy(run) as second:
                assert second.wait() == 75 and "Traceback" not in second.said()
            DryTrainer(run, lambda: not time.sleep(0.01)).train(75)
            until("the steps are recorded", lambda: run.loss.read_bytes().count(b'"step":75,') == 1)
            assert proxy.process.poll() is None and proxy.stop() == 0
        while said[-1].startswith(("READY", "STATUS", "EXTEND")):
            said.append(manager.recv(4096).decode())
    assert said[-1].startswith("STOPPING=1") and any("planned to step" in message for message in said)
    assert read_pidfile(run.proxy_pid) is None and not probe(run.proxy_lock).held
    assert json.loads(run.state.read_bytes())["step"] == 75
    assert look(run, "proxy").state == "stopped"


def test_where_the_kernel_gives_no_file_events_it_looks_itself_and_says_so(make: Make) -> None:
    run = make("polled", {"optimizer": {"max_steps": 4000}})
    no_inotify: dict[str, object] = {"at": "watchdog.observers.api:BaseObserver.schedule", "call": 1, "do": "EMFILE"}
    with start_proxy(run, hurt=[{**no_inotify, "times": 0}]) as proxy:
        until("the plan begins", lambda: run.plan.exists() and lines(run) >= 2)
        DryTrainer(run, lambda: not time.sleep(0.01)).train(60)
        assert proxy.stop() == 0
    assert "no file events" in proxy.said() and lines(run) >= 6


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (lambda run: run.run_toml.unlink(), 1, "no run here"),
        (lambda run: run.run_toml.write_text("[run]\nnmae = 'x'"), 78, "did you mean"),
        (lambda run: run.policy_toml.write_text("[arms.a]\npath = '/nowhere.txt'\n"), 78, "andrea prepare"),
    ],
)
def test_what_it_cannot_serve_is_told_in_words(
    make: Make, spoil: Callable[[RunDir], object], code: int, words: str
) -> None:
    run = make("spoilt")
    spoil(run)
    with start_proxy(run) as proxy:
        assert proxy.wait() == code, proxy.said()
    assert words in proxy.said() and "Traceback" not in proxy.said()


@pytest.mark.parametrize(
    ("at", "call", "removed"),
    [
        ("andrea_proxy.service:_Service._turn", 3, False),
        ("andrea_proxy.desk:Desk._publish", 3, False),
        ("andrea_proxy.desk:Desk._save", 3, False),
        ("andrea_proxy.pivot:Pivot.archive", 3, False),
        ("andrea_proxy.service:_Service._anew", 3, False),
        ("andrea_proxy.desk:Desk.let_go", 1, True),
        ("andrea_proxy.service:_Service._open", 2, True),
        ("andrea_proxy.desk:Desk._begin", 2, True),
    ],
)
def test_a_run_that_is_moved_away_at_any_moment_is_waited_for(at: str, call: int, removed: bool, make: Make) -> None:
    """It is served on when it is back. Where a file was `removed` before, the proxy is about to open all anew."""
    run = quiet(make("moved", {"optimizer": {"max_steps": 4000}}), 15)
    assert main(["pivot", str(run.root), "--cap", "prose=0.3", "--no-wait"]) == 0
    quiet(run, 60)
    assert run.archive.exists()
    away = run.root.with_name("away")
    with start_proxy(run, hurt=[{"at": at, "call": call, "do": "STOP"}]) as proxy:
        until("it is at work", lambda: "planned to step" in proxy.said())
        if removed:
            run.loss.unlink()
        until("it stands still", proxy.frozen)
        run.root.rename(away)
        proxy.signal(signal.SIGCONT)
        until("it says so", lambda: "waits: the run is no longer where it was" in proxy.said())
        assert not run.root.exists()
        away.rename(run.root)
        until("it is at work again", run.loss.exists)
        DryTrainer(run, lambda: not time.sleep(0.01)).train(75)
        until("the steps are recorded", lambda: run.loss.read_bytes().count(b'"step":75,') == 1)
        assert proxy.stop() == 0, proxy.said()
    assert "Traceback" not in proxy.said() and len(list(read(run.loss))) == 75


@pytest.mark.parametrize("opening", [False, True])
def test_a_stop_while_the_run_is_away_ends_with_1_whatever_it_was_about(opening: bool, make: Make) -> None:
    run = quiet(make("away", {"optimizer": {"max_steps": 4000}}), 30)
    at_the_second: dict[str, object] = {"at": "andrea_proxy.service:_Service._open", "call": 2, "do": "STOP"}
    with start_proxy(run, hurt=[at_the_second]) as proxy:
        until("it is at work", lambda: "planned to step" in proxy.said())
        if opening:
            run.loss.unlink()
            until("it stands still", proxy.frozen)
        run.root.rename(run.root.with_name("elsewhere"))
        proxy.signal(signal.SIGCONT)
        until("it says so", lambda: "waits: the run is no longer where it was" in proxy.said())
        assert proxy.stop() == 1, proxy.said()


def train_to_the_end(run: RunDir) -> None:
    """30 steps, which are all of the run, beside a proxy."""
    until("the plan begins", lambda: run.plan.exists() and lines(run) >= 2)
    DryTrainer(run, lambda: not time.sleep(0.01)).train(30)
    until("all is planned", lambda: lines(run) == 3)


def test_a_run_toml_that_cannot_be_read_for_a_moment_is_looked_at_again(make: Make) -> None:
    run = make("halfway", {"optimizer": {"max_steps": 30}})
    with start_proxy(run) as proxy:
        train_to_the_end(run)
        longer = run.run_toml.read_text().replace("max_steps = 30 ", "max_steps = 60 ")
        run.run_toml.write_text(longer)
        proxy.signal(signal.SIGSTOP)
        until("it stands still", proxy.frozen)
        trainer = DryTrainer(run, lambda: not time.sleep(0.01))
        run.run_toml.write_text(longer.replace("max_steps = 60 ", "max_steps = "))
        proxy.signal(signal.SIGCONT)
        until("it says so", lambda: "run.toml has changed and cannot be read" in proxy.said())
        run.run_toml.write_text(longer)
        trainer.train(60)
        assert trainer.step == 60 and proxy.stop() == 0, proxy.said()


def test_it_follows_a_change_of_run_toml_that_the_trainer_started_with(make: Make) -> None:
    run = make("longer", {"optimizer": {"max_steps": 30}})
    with start_proxy(run) as proxy:
        train_to_the_end(run)
        run.run_toml.write_text(run.run_toml.read_text().replace("max_steps = 30 ", "max_steps = 60 "))
        trainer = DryTrainer(run, lambda: not time.sleep(0.01))
        trainer.train(60)
        assert trainer.step == 60 and proxy.stop() == 0, proxy.said()
    assert lines(run) == 6
