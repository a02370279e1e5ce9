"""Actions by HTTP: what is refused, and that every request leaves its line in the journal."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from andrea_rundir import config
from andrea_rundir.lock import Lock
from andrea_rundir.names import RunDir
from andrea_service import identity
from andrea_service.presence import look
from harness.pages import Client
from harness.waiting import until

# Takes the run's lock as a trainer does, and says which signals reach it.
HOLDER = """
import signal, sys
from pathlib import Path
from andrea_rundir.lock import Lock
from andrea_service import identity
signals = {signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
with Lock.acquire(Path(sys.argv[1]), identity.me()):
    while True:
        print(signal.sigwait(signals).name, flush=True)
"""


@pytest.fixture
def client(mine: RunDir, serve: Callable[[RunDir], Client]) -> Client:
    return serve(mine)


@pytest.fixture
def holder(mine: RunDir) -> Iterator[subprocess.Popen[str]]:
    """Somebody who holds the lock of the trainer."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(mine.train_lock)], stdout=subprocess.PIPE, text=True)
    until("the lock is taken", lambda: look(mine).alive)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def journal(client: Client) -> Iterator[list[logging.LogRecord]]:
    """What goes to the journal meanwhile."""
    records: list[logging.LogRecord] = []
    handler, logger = logging.Handler(), logging.getLogger("andrea")
    handler.emit = records.append  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(level)


def shown(client: Client) -> dict[str, Any]:
    """What a page names in its requests."""
    found = client.ask("/api/run").json
    return {"run": found["id"], "process": found["process"], "policy": found["curriculum"]["policy"]}


def test_a_request_reaches_the_process_that_was_shown(
    client: Client, mine: RunDir, holder: subprocess.Popen[str], journal: list[logging.LogRecord]
) -> None:
    until("the page knows it", lambda: shown(client)["process"])
    page = shown(client)
    assert holder.stdout is not None
    answer = client.act("checkpoint", **page)
    assert answer.status == 202 and answer.json["pid"] == holder.pid and holder.stdout.readline() == "SIGUSR1\n"
    assert client.act("stop", **page, name="other").status == 409
    assert client.act("stop", **page | {"run": "f" * 32}, name="small").status == 409
    assert client.act("stop", **page | {"process": "x-1-1"}, name="small").status == 409
    answer = client.act("stop", **page, name="small")
    assert answer.status == 202 and holder.stdout.readline() == "SIGTERM\n"
    events = [record.__dict__.get("event") for record in journal]
    assert events.count("action") == 5 and "SIGTERM to pid" in journal[-1].getMessage()
    assert all("127.0.0.1" in record.getMessage() for record in journal)


def test_a_page_left_open_cannot_act_on_the_next_trainer(
    client: Client, mine: RunDir, holder: subprocess.Popen[str]
) -> None:
    until("the page knows it", lambda: shown(client)["process"])
    page = shown(client)
    holder.kill()
    holder.wait()
    with Lock.acquire(mine.train_lock, identity.me()):  # this very process: a signal would end the test
        for name in ("stop", "checkpoint"):
            answer = client.act(name, **page, name="small")
            assert answer.status == 409 and "another process" in answer.json["error"]["what"]
    answer = client.act("stop", **page, name="small")
    assert answer.status == 409 and "not signalled" in answer.json["error"]["what"]


def test_a_pivot_is_judged_and_asked_for(client: Client, mine: RunDir) -> None:
    page = shown(client)
    before = mine.policy_toml.read_text()
    judged = client.act("pivot", **page, caps={"prose": 0.25}, floors={}, dry_run=True)
    rows = {row["arm"]: row for row in judged.json["arms"]}
    assert judged.status == 200 and not mine.policy_next.exists()
    assert rows["prose"]["new_cap"] == 0.25 and rows["prose"]["new_share"] <= 0.25 < rows["sums"]["new_share"]
    done = client.act("pivot", **page, caps={"prose": 0.25}, floors={}, dry_run=False)
    assert (
        done.status == 202 and "cap = 0.25" in mine.policy_next.read_text() and mine.policy_toml.read_text() == before
    )
    again = client.act("pivot", **page, caps={"prose": 0.3}, floors={}, dry_run=False)
    assert again.status == 409 and "another pivot" in again.json["error"]["what"]


@pytest.mark.parametrize(
    ("limits", "status", "words"),
    [
        ({"caps": {"prose": 0.1, "sums": 0.1}}, 409, "sum to less than 1"),
        ({"floors": {"prose": 0.9}, "caps": {"prose": 0.5}}, 409, "above its cap"),
        ({"caps": {"nobody": 0.5}}, 400, "no arm"),
        ({"caps": {"prose": float("nan")}}, 400, "the request is no JSON"),
        ({"caps": {"prose": 1.5}}, 400, "out of range"),
        ({"caps": {"prose": "0.5"}}, 400, "no number"),
        ({"caps": [1]}, 400, "no object"),
        ({"caps": {}}, 409, "in force already"),
        ({"policy": "0-000000000000", "caps": {"prose": 0.5}}, 409, "another policy is in force"),
        ({"run": "f" * 32, "caps": {"prose": 0.5}}, 409, "another run"),
    ],
)
def test_a_pivot_that_cannot_be_is_refused(
    client: Client, mine: RunDir, limits: dict[str, Any], status: int, words: str
) -> None:
    answer = client.act("pivot", **shown(client) | limits, dry_run=False)
    assert answer.status == status and words in answer.json["error"]["what"], answer.body
    assert not mine.policy_next.exists()


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 60_000, b'{"run": 1}', b'{"name": "small"}'])
def test_a_body_that_is_no_request_is_told_so(client: Client, body: bytes) -> None:
    answer = client.ask("/api/stop", "POST", body, Content_Type="application/json")
    assert answer.status in (400, 409) and answer.json["error"]["what"]
    assert client.ask("/api/stop", "POST", body, Content_Type="text/plain").status == 400


def test_nothing_is_signalled_by_number(mine: RunDir) -> None:
    """A lock that somebody else holds under a dead trainer's name is nobody to signal."""
    settings = config.load(mine.run_toml)
    with Lock.acquire(mine.train_lock, {**identity.me(settings.run.id), "start_ticks": 1}):
        assert look(mine).state == "foreign"
        with pytest.raises(Exception, match="not signalled"):
            identity.send(mine, signal.SIGTERM, only=identity.name({"pid": os.getpid()}))
