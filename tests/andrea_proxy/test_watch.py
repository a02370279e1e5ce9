"""What wakes the proxy, and what does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from andrea_proxy import watch
from andrea_proxy.watch import Watch
from andrea_rundir.names import RunDir

LONG = 30.0


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setattr(watch, "RESCAN_SECONDS", LONG)
    run = RunDir(tmp_path)
    run.events.mkdir()
    (run.events / "000001.jsonl").write_text("{}\n")
    return run


def woken(run: RunDir, change: Callable[[], object], within: float = LONG / 2) -> bool:
    """Whether `change`, made while a watch waits, wakes it long before it looks anyway."""
    with Watch(run, lambda text: pytest.fail(text)) as watching:
        watching.wait(lambda: False)  # what was there before is new to it
        done = threading.Timer(0.2, change)
        done.start()
        until = time.monotonic() + within
        watching.wait(lambda: time.monotonic() > until)
        done.join()
        return time.monotonic() < until


def grow(run: RunDir, segment: str) -> None:
    with (run.events / segment).open("a") as file:
        file.write("{}\n")


def ask(run: RunDir) -> None:
    (run.root / "request.tmp").write_text("")
    (run.root / "request.tmp").rename(run.policy_next)


def begin_again(run: RunDir) -> None:
    (run.events / "000001.jsonl").unlink()
    run.events.rmdir()
    run.events.mkdir()
    grow(run, "000001.jsonl")


@pytest.mark.parametrize(("within", "pause"), [(0.0, 0.005), (0.02, 0.02), (9.0, 0.05)])
def test_it_looks_as_often_as_its_user_needs(within: float, pause: float, run: RunDir) -> None:
    waited: list[float | None] = []

    class Hint(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout)
            return len(waited) > 3

    with Watch(run, lambda text: pytest.fail(text)) as watching:
        watching.wait(lambda: False)  # what was there before is new to it
        watching._hint = Hint()
        watching.wait(lambda: False, within)
    assert waited == [pause] * 4


@pytest.mark.parametrize(
    "change",
    [
        lambda run: grow(run, "000001.jsonl"),
        lambda run: grow(run, "000002.jsonl"),
        lambda run: run.policy_next.write_text("x"),
        ask,
        begin_again,
    ],
)
def test_it_wakes(run: RunDir, change: Callable[[RunDir], object]) -> None:
    assert woken(run, lambda: change(run))


def test_it_wakes_at_the_first_event_of_all(run: RunDir) -> None:
    def start() -> None:
        run.events.mkdir()
        grow(run, "000001.jsonl")

    (run.events / "000001.jsonl").unlink()
    run.events.rmdir()
    with Watch(run, lambda text: pytest.fail(text)) as watching:
        threading.Timer(0.2, start).start()
        began = time.monotonic()
        watching.wait(lambda: False)
        assert time.monotonic() - began < LONG / 2


def test_what_the_proxy_writes_itself_wakes_it_not(run: RunDir) -> None:
    def write() -> None:
        run.loss.write_text("[")
        (run.root / "x").write_text("")
        (run.root / "x").rename(run.state)

    assert not woken(run, write, within=1.0)


def test_whoever_stops_waits_no_longer(run: RunDir) -> None:
    with Watch(run, lambda text: pytest.fail(text)) as watching:
        watching.wait(lambda: False)
        began = time.monotonic()
        watching.wait(lambda: True)
        assert time.monotonic() - began < LONG / 2
