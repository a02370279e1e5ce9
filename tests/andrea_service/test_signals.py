from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import os, signal, subprocess, sys, threading, time
from andrea_service import signals
signals.block()
def say(*words): print(*words, flush=True)
"""
SERVICE = (
    HEAD
    + """
wishes = signals.Signals()
wishes.install()
say("ready")
"""
)
# Every 'ask' runs a line of Python there.
OBEDIENT = SERVICE + "for line in sys.stdin: exec(line)\n"


def masks(pid: int, field: str = "SigBlk") -> list[int]:
    """Signal masks of all threads, as integers."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    return [int(line.split()[1], 16) for line in lines if line.startswith(field)]


def has(mask: int, number: signal.Signals) -> bool:
    return bool(mask >> (number - 1) & 1)


def test_usr1_wishes_for_a_checkpoint_again_and_again(start: Callable[..., Any]) -> None:
    child = start(OBEDIENT)
    child.hear()
    for _ in range(3):
        child.send(signal.SIGUSR1)
        answer = child.ask("say(wishes.checkpoint_wanted.wait(5), wishes.stop_wanted.is_set())")
        assert answer == "True False"
        child.ask("wishes.checkpoint_wanted.clear(); say()")
    assert child.end() == 0


@pytest.mark.parametrize(("first", "name"), [(signal.SIGTERM, "sigterm"), (signal.SIGINT, "sigint")])
def test_the_first_stop_counts_and_after_it_nothing_does(
    start: Callable[..., Any], first: signal.Signals, name: str
) -> None:
    child = start(OBEDIENT)
    child.hear()
    child.send(first)
    assert child.ask("say(wishes.stop_wanted.wait(5), wishes.stop_reason)") == f"True {name}"
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        child.send(number)
    answer = child.ask("time.sleep(0.1); say(wishes.checkpoint_wanted.is_set(), wishes.stop_reason)")
    assert answer == f"False {name}"
    assert child.end() == 0


def test_signals_from_before_python_was_ready_are_not_lost(start: Callable[..., Any]) -> None:
    early = "import sys; print('early', flush=True); sys.stdin.readline()\n"
    child = start(early + OBEDIENT)
    child.hear()
    child.send(signal.SIGTERM)
    child.send(signal.SIGTERM)
    assert child.ask("") == "ready"
    assert child.ask("say(wishes.stop_wanted.wait(5), wishes.stop_reason)") == "True sigterm"

    child = start(early + OBEDIENT)
    child.hear()
    child.send(signal.SIGUSR1)
    assert child.ask("") == "ready"
    assert child.ask("say(wishes.checkpoint_wanted.wait(5))") == "True"


def test_a_wait_in_the_main_thread_is_broken_off(start: Callable[..., Any]) -> None:
    child = start(SERVICE + "say(wishes.stop_wanted.wait(60))")
    child.hear()
    began = time.monotonic()
    child.send(signal.SIGTERM)
    assert child.hear() == "True"
    assert time.monotonic() - began < 5


def test_a_signal_inside_the_events_own_lock_does_not_hang(start: Callable[..., Any]) -> None:
    """Event.wait holds that lock for an instant at each call; a handler that sets the event would wait for it."""
    child = start(
        SERVICE + "with wishes.stop_wanted._cond:\n    say('inside'); time.sleep(0.3)\nsay(wishes.stop_wanted.wait(5))"
    )
    child.hear()
    assert child.hear() == "inside"
    child.send(signal.SIGTERM)
    assert child.hear() == "True"


def test_usr1_is_blocked_in_every_thread_and_term_in_none_but_the_listener(start: Callable[..., Any]) -> None:
    child = start(
        HEAD + "import numpy as np; a = np.ones((300, 300)); a @ a\n" + OBEDIENT.removeprefix(HEAD),
    )
    child.hear()
    child.ask("threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); say()")
    blocked = masks(child.pid)
    assert len(blocked) >= 3
    open_ = [mask for mask in blocked if not has(mask, signal.SIGUSR1)]
    assert len(open_) == 1  # the listener: the kernel shows what sigwait waits for as not blocked
    assert has(open_[0], signal.SIGTERM)
    assert has(open_[0], signal.SIGINT)
    main = masks(child.pid)[0]
    assert not has(main, signal.SIGTERM)
    assert not has(main, signal.SIGINT)


CHILDREN = {
    "exec": "child = subprocess.Popen(['sleep', '60']); say(child.pid)",
    "fork": "pid = os.fork(); (time.sleep(60), os._exit(3)) if pid == 0 else say(pid)",
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_usr1_to_the_whole_unit_hurts_no_child_and_term_ends_it(start: Callable[..., Any], kind: str) -> None:
    service = start(OBEDIENT)
    service.hear()
    child = int(service.ask(CHILDREN[kind]))
    for pid in (service.pid, child):  # as `systemctl kill -s USR1` does
        os.kill(pid, signal.SIGUSR1)
    assert service.ask("say(wishes.checkpoint_wanted.wait(5))") == "True"
    assert all(has(mask, signal.SIGUSR1) for mask in masks(child))
    assert service.ask(f"say(os.waitpid({child}, os.WNOHANG))") == "(0, 0)"
    os.kill(child, signal.SIGTERM)
    assert service.ask(f"say(os.waitpid({child}, 0)[1])") == str(int(signal.SIGTERM))
    assert service.ask("say(wishes.stop_reason)") == "None"


def test_a_stop_right_after_the_fork_ends_the_child(start: Callable[..., Any]) -> None:
    child = start(
        SERVICE + "for _ in range(150):\n    pid = os.fork()\n    if pid == 0: time.sleep(60); os._exit(3)\n"
        "    os.kill(pid, signal.SIGTERM); assert os.waitpid(pid, 0)[1] == signal.SIGTERM\n"
        "say(wishes.stop_wanted.is_set(), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"
    )
    child.hear()
    assert child.hear() == f"False {[signal.SIGABRT, signal.SIGUSR1]}"


def test_worker_processes_can_be_terminated(start: Callable[..., Any]) -> None:
    child = start(
        SERVICE + "import multiprocessing as m\nfor way in ('fork', 'forkserver'):\n"
        "    worker = m.get_context(way).Process(target=time.sleep, args=(60,)); worker.start()\n"
        "    time.sleep(0.2); worker.terminate(); worker.join(10); say(worker.exitcode)\n"
    )
    child.hear()
    assert [child.hear(), child.hear()] == ["-15", "-15"]


def test_term_stays_as_it_is_until_installed(start: Callable[..., Any]) -> None:
    child = start(HEAD + "say(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))")
    assert child.hear() == str(sorted([signal.SIGABRT, signal.SIGUSR1, signal.SIGTERM]))
