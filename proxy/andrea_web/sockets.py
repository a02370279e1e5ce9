"""Where the page is reached: sockets that the service manager hands over, else a port of this host's loopback.

Promises never to listen where another host could reach it. Writes nothing. Standard library and `faults`.
"""

from __future__ import annotations

import ipaddress
import os
import socket

from andrea_rundir.faults import Refused

FIRST_FD = 3
HOST = "127.0.0.1"


def listeners(port: int) -> list[socket.socket]:
    """The sockets to serve on; Refused when the port is taken, or one that was handed over is no loopback."""
    found = handed_over() or [_bound(port)]
    far = [address(listener) for listener in found if not _near(listener)]
    if far:
        for listener in found:
            listener.close()
        raise Refused(
            "the page is served on this host only",
            where=", ".join(far),
            expected="ListenStream= with a loopback address or a path",
            todo="change the socket unit; from elsewhere use ssh -L",
        )
    return found


def handed_over() -> list[socket.socket]:
    """The listening sockets meant for this process (sd_listen_fds(3)); its children are not to think them theirs."""
    mine = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    count = int(os.environ.pop("LISTEN_FDS", "0"))
    os.environ.pop("LISTEN_FDNAMES", None)
    fds = range(FIRST_FD, FIRST_FD + count) if mine else ()
    for fd in fds:
        os.set_inheritable(fd, False)
    return [socket.socket(fileno=fd) for fd in fds]


def address(listener: socket.socket) -> str:
    """`host:port`, or the path of a unix socket."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return str(name)
    return f"[{name[0]}]:{name[1]}" if listener.family == socket.AF_INET6 else f"{name[0]}:{name[1]}"


def _near(listener: socket.socket) -> bool:
    """Whether only this host can reach it."""
    return listener.family == socket.AF_UNIX or ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def _bound(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise Refused(
            "the page's port cannot be had",
            where=f"{HOST}:{port}",
            found=error.strerror or str(error),
            todo="another run's page may be there: give this one --port N, or --no-web",
        ) from None
