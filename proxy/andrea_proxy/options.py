"""The command line of `andrea-proxy`, apart from the program: it is documented without being started. Pure."""

from __future__ import annotations

import argparse

PORT = 8470


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="andrea-proxy",
        description="Decide what a run trains on next, from what its trainer recorded, keep the sidecars, and serve "
        "the run's page (`andrea url RUN` prints the way to it). Starts before, after or without the trainer. SIGTERM: "
        "write everything, exit.",
    )
    parser.add_argument(
        "--run", required=True, metavar="RUN", help="a run directory, or a name under the state directory"
    )
    parser.add_argument("--no-web", action="store_true", help="serve no page")
    parser.add_argument(
        "--port",
        metavar="N",
        type=_port,
        default=PORT,
        help=f"where on 127.0.0.1 the page is served (default {PORT}; 0: any that is free), unless the service manager "
        "hands over a socket",
    )
    return parser


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port")
    return int(text)
