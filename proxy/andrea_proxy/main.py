"""`andrea-proxy --run RUN`: the curriculum of one run, as a process.

Promises that SIGUSR1, which is meant for the trainer, does it no harm. Writes what `service` writes.
"""

from __future__ import annotations

import faulthandler
import sys
from typing import TYPE_CHECKING

from andrea_service import signals as wishes

if TYPE_CHECKING:
    import argparse


def main() -> int:
    """Entry point of the script."""
    wishes.block()
    from andrea_service.errors import boundary

    faulthandler.enable()
    return boundary(_main, "andrea-proxy")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="andrea-proxy",
        description="Decide what a run trains on next, from what its trainer recorded, and keep the sidecars. "
        "Starts before, after or without the trainer. SIGTERM: write everything, exit.",
    )
    parser.add_argument(
        "--run", required=True, metavar="RUN", help="a run directory, or a name under the state directory"
    )
    return parser


def _main() -> int:
    args = parser().parse_args()
    signals = wishes.Signals()
    signals.install()
    from andrea_proxy import healthz

    healthz.serve(healthz.handed_over())
    from andrea_proxy.service import serve
    from andrea_rundir.names import locate

    return serve(locate(args.run), signals)


if __name__ == "__main__":
    sys.exit(main())
