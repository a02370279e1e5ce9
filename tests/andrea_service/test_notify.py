from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_service.notify import Extender, Heartbeat, Notifier, _one_line


class Manager:
    """The manager's end of the line."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(5)

    def hear(self) -> str:
        return self.socket.recv(65536).decode("utf-8")

    def waiting(self) -> list[str]:
        """All that was said and not heard yet."""
        heard = []
        self.socket.setblocking(False)
        try:
            while True:
                heard.append(self.hear())
        except BlockingIOError:
            return heard
        finally:
            self.socket.settimeout(5)


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "path" else f"\0andrea-test-{os.getpid()}"
    manager = Manager(address)
    monkeypatch.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))
    yield manager
    manager.socket.close()


@pytest.fixture
def notifier(manager: Manager) -> Iterator[Notifier]:
    notifier = Notifier()
    yield notifier
    assert notifier._line is not None
    notifier._line.socket.close()


def test_the_words(manager: Manager, notifier: Notifier) -> None:
    notifier.ready("step 1")
    notifier.status("é → 步")
    notifier.extend(2.5)
    notifier.watchdog()
    notifier.stopping("saving")
    assert [manager.hear() for _ in range(6)] == [
        "READY=1",
        "STATUS=step 1",
        "STATUS=é → 步",
        "EXTEND_TIMEOUT_USEC=2500000",
        "WATCHDOG=1",
        "STOPPING=1\nSTATUS=saving",
    ]


def test_a_status_says_nothing_but_a_status(manager: Manager, notifier: Notifier) -> None:
    notifier.status("a\nREADY=1\r\nb\0c\u2028d\ud800")
    assert manager.hear() == "STATUS=a READY=1 b c d?"


@given(st.text(st.characters(), max_size=2000))
def test_one_line_is_one_line_and_utf8_and_short(text: str) -> None:
    data = _one_line(text).encode("utf-8")
    assert len(data) <= 1000
    assert len(data.decode().splitlines()) <= 1
    assert b"\0" not in data


def test_the_cap_cuts_between_characters() -> None:
    assert _one_line("é" * 2000) == "é" * 500
    assert _one_line("a" + "é" * 2000) == "a" + "é" * 499


def test_children_are_not_given_the_address(manager: Manager, notifier: Notifier) -> None:
    assert "NOTIFY_SOCKET" not in os.environ


QUIET = (
    "from andrea_service.notify import Notifier; n = Notifier(); n.ready('x'); n.status('x'); n.stopping('x');"
    "n.extend(1); n.watchdog(); print('fine')"
)


@pytest.mark.parametrize("address", ["", "/nonexistent/notify", "@nobody-listens-here"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    env = {**os.environ, "NOTIFY_SOCKET": address}
    done = subprocess.run([sys.executable, "-c", QUIET], env=env, capture_output=True, timeout=30)
    assert (done.stdout, done.stderr) == (b"fine\n", b"")


def test_a_manager_that_left_or_does_not_read_stops_nobody(manager: Manager, notifier: Notifier) -> None:
    assert notifier._line is not None
    notifier._line.socket.settimeout(0.05)
    began = time.monotonic()
    for _ in range(int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 3):
        notifier.status("x" * 900)
    assert time.monotonic() - began < 10
    manager.socket.close()
    notifier.status("x")


def test_a_send_may_block_for_a_second_only(notifier: Notifier) -> None:
    assert notifier._line is not None
    assert notifier._line.socket.gettimeout() == 1.0


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        (None, None, None),
        ("120000000", None, 120.0),
        ("120000000", "me", 120.0),
        ("120000000", "1", None),
        ("0", None, None),
        ("no", None, None),
        ("", None, None),
    ],
)
def test_watchdog_seconds(
    monkeypatch: pytest.MonkeyPatch, usec: str | None, pid: str | None, seconds: float | None
) -> None:
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value.replace("me", str(os.getpid())))
    assert Notifier().watchdog_seconds == seconds


def test_the_heart_beats_with_the_loop_only(
    manager: Manager, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "120000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    now = 1000.0
    heart = Heartbeat(notifier, clock=lambda: now)
    threads = threading.active_count()
    pings = []
    for now in (1000.0, 1001.0, 1029.9, 1030.0, 1030.1, 1500.0):  # noqa: B007 - the clock
        heart.beat()
        pings.append(len(manager.waiting()))
    assert pings == [1, 0, 0, 1, 0, 1]
    assert threading.active_count() == threads


def test_without_a_watchdog_no_heartbeat(manager: Manager, notifier: Notifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    Heartbeat(notifier).beat()
    assert manager.waiting() == []
    Heartbeat(notifier, 1.0).beat()
    assert manager.waiting() == ["WATCHDOG=1"]


def test_more_time_only_while_bytes_grow(manager: Manager, notifier: Notifier) -> None:
    """A slow disk gets it, a hung one does not."""
    written = 0
    with Extender(notifier, lambda: written, seconds=3, interval=0.02):
        assert manager.hear() == "EXTEND_TIMEOUT_USEC=3000000"  # at once
        for _ in range(5):
            written += 1
            assert manager.hear() == "EXTEND_TIMEOUT_USEC=3000000"
        time.sleep(0.3)
        assert manager.waiting() == []  # hung
        written += 1
        assert manager.hear() == "EXTEND_TIMEOUT_USEC=3000000"  # and going again
    written += 1
    time.sleep(0.1)
    assert manager.waiting() == []
    assert "extender" not in {thread.name for thread in threading.enumerate()}


def test_what_was_written_before_earns_nothing(manager: Manager, notifier: Notifier) -> None:
    with Extender(notifier, lambda: 10**9, interval=0.02):
        time.sleep(0.2)
    assert manager.waiting() == ["EXTEND_TIMEOUT_USEC=10000000"]
