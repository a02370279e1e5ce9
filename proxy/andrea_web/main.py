"""`andrea-proxy --run RUN`: the curriculum of one run, as a process, with the run's page beside it.

Promises that SIGUSR1, which is meant for the trainer, does it no harm, and that nothing about the page stops the
curriculum. Writes what `andrea_proxy.service` and `door` write.
"""

from __future__ import annotations

import faulthandler
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from andrea_service import signals as wishes

if TYPE_CHECKING:
    from andrea_rundir.names import RunDir


def main() -> int:
    """Entry point of the script."""
    wishes.block()
    from andrea_service.errors import boundary

    # Not the stacks of all threads: one that runs while its frames are read ends the process by SIGSEGV, with no stack.
    faulthandler.enable(all_threads=False)
    code = boundary(_main, "andrea-proxy")
    wishes.ignore_stops()
    return code


def _main() -> int:
    from andrea_proxy.options import parser

    args = parser().parse_args()
    signals = wishes.Signals()
    signals.install()
    from andrea_proxy.service import serve
    from andrea_rundir.names import locate

    def beside(run: RunDir) -> AbstractContextManager[object]:
        if args.no_web:
            return nullcontext()
        from andrea_web.server import Page

        return Page(run, args.port)

    return serve(locate(args.run), signals, beside)


if __name__ == "__main__":
    sys.exit(main())
