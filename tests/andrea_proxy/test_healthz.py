from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from andrea_proxy import healthz

# As the service manager does: the listening socket is descriptor 3, the variables name this process.
SERVER = """
import os, sys, time
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), "1"
from andrea_proxy import healthz
listeners = healthz.handed_over()
assert not os.get_inheritable(3) and not any(name.startswith("LISTEN") for name in os.environ)
healthz.serve(listeners)
time.sleep(60)
"""


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Where a process answers that was handed its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = subprocess.Popen([sys.executable, "-c", SERVER, str(listener.fileno())], pass_fds=[listener.fileno()])
        found = listener.getsockname()
    try:
        yield found
    finally:
        process.kill()
        process.wait()


def ask(address: tuple[str, int], request: bytes) -> bytes:
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(4096), b""))


def test_the_answers(address: tuple[str, int]) -> None:
    assert ask(address, b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nok\n")
    assert ask(address, b"GET /else HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 404 ")
    assert b" 501 " in ask(address, b"POST /healthz HTTP/1.0\r\n\r\n")


def test_a_client_that_says_nothing_or_nonsense_does_not_end_it(address: tuple[str, int]) -> None:
    silent = socket.create_connection(address)
    ask(address, b"\xff\x00\r\n\r\n")
    gone = socket.create_connection(address)
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    gone.close()
    assert ask(address, b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"ok\n")
    silent.close()


def test_sockets_of_another_process_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert healthz.handed_over() == []
