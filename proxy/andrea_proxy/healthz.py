"""`/healthz` on the sockets that the service manager hands over, until the run page takes them.

Promises never to open a socket of its own, and that whatever a client sends or leaves open stops nothing else. The
answer says that the process lives, not more. Writes nothing. Standard library only.
"""

from __future__ import annotations

import os
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any

FIRST_FD = 3
PATIENCE_SECONDS = 1.0  # a client that says nothing holds up the next for so long


def handed_over() -> list[socket.socket]:
    """The listening sockets meant for this process (sd_listen_fds(3)); its children are not to think them theirs."""
    mine = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    count = int(os.environ.pop("LISTEN_FDS", "0"))
    os.environ.pop("LISTEN_FDNAMES", None)
    fds = range(FIRST_FD, FIRST_FD + count) if mine else ()
    for fd in fds:
        os.set_inheritable(fd, False)
    return [socket.socket(fileno=fd) for fd in fds]


def serve(listeners: list[socket.socket]) -> None:
    """Answer on each of them, in threads that end with the process."""
    for listener in listeners:
        threading.Thread(target=_Server(listener).serve_forever, name="healthz", daemon=True).start()


class _Server(BaseServer):
    """One client after another. Not http.server's: that one opens a socket first, which the sandbox forbids."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(listener.getsockname(), _Answer)
        self._listener = listener

    def fileno(self) -> int:
        return self._listener.fileno()

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next client."""
        return self._listener.accept()

    def close_request(self, request: Any) -> None:
        """Done with it."""
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or said nothing is no event."""


class _Answer(BaseHTTPRequestHandler):
    timeout = PATIENCE_SECONDS
    server_version, sys_version = "andrea-proxy", ""

    def do_GET(self) -> None:
        """200 for `/healthz`, 404 for anything else."""
        known = self.path == "/healthz"
        body = b"ok\n" if known else b"not found\n"
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Nobody wants a line a health check."""
