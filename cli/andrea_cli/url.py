"""Print the way to a run's page: the link with its token, and the ssh line for another machine.

The link is a key: who has it can stop the run. Only the run's owner (or root) can read it. Exits 0; 1 when no page is
served.
"""

from __future__ import annotations

import socket
from argparse import ArgumentParser, Namespace

from andrea_cli import facts, output
from andrea_rundir import door
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.names import locate
from andrea_service.presence import look

OWNERS = True
LOCAL_PORT = 8470
"""Where ssh brings the page of a unix socket."""


def add_arguments(parser: ArgumentParser) -> None:
    """RUN."""
    parser.add_argument("run", metavar="RUN")


def run(args: Namespace) -> int:
    """Print it."""
    directory = locate(args.run)
    facts.settings(directory)
    found = door.read(directory)
    if not (proxy := look(directory, "proxy")).alive:
        raise Refused("no page is served", where=str(directory.root), found=proxy.sentence, todo="start andrea-proxy")
    if found is None or found.address is None:
        raise Refused(
            "no page is served",
            where=str(directory.page),
            found="no address" if found else "no such file, or one that others could read",
            todo="start andrea-proxy without --no-web; its messages say why when it serves none",
        )
    unix = found.address.startswith("/")
    port = LOCAL_PORT if unix else int(found.address.rpartition(":")[2])
    there = found.address if unix else f"127.0.0.1:{port}"
    url = f"http://127.0.0.1:{port}/?token={found.token}"
    tunnel = f"ssh -L {port}:{there} {socket.gethostname()}"
    lines = [f"from elsewhere, first: {tunnel}"]
    lines = [f"it is a unix socket; first: {tunnel}", url] if unix else [url, *lines]
    output.show(args, {"url": url, "address": found.address, "ssh": tunnel}, lines)
    return EXIT_OK
