"""`andrea-train --run RUN`: from the command line to a loop that trains, and back to an exit code.

Promises that signals are taken care of, and the run's lock is held, before anything heavy is imported. Writes no file
itself.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import TYPE_CHECKING

from andrea_service import signals as wishes

if TYPE_CHECKING:
    import argparse


def main() -> int:
    """Entry point of the script."""
    wishes.block()
    from andrea_service.errors import boundary

    # Not the stacks of all threads: one that runs while its frames are read ends the process by SIGSEGV, with no stack.
    faulthandler.enable(all_threads=False)
    code = boundary(_main, "andrea-train")
    wishes.ignore_stops()
    return code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="andrea-train",
        description="Train a run until it is finished or told to stop. SIGTERM: finish the step, save, exit. "
        "SIGUSR1: finish the step, save, go on.",
    )
    parser.add_argument(
        "--run", required=True, metavar="RUN", help="a run directory, or a name under the state directory"
    )
    parser.add_argument("--until-step", type=int, metavar="N", help="stop after step N as SIGTERM would")
    return parser


def _main() -> int:
    args = parser().parse_args()
    signals = wishes.Signals()
    signals.install()
    # Read by cuBLAS when CUDA starts; torch no longer checks that it is there.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Threads that wait for each other sleep instead of spinning: beside any other load, spinning costs a factor of ten.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from andrea_rundir.names import locate
    from andrea_service.held import held

    run = locate(args.run)
    with held(run, run.train_lock, run.train_pid) as settings:
        from andrea_train.start import train  # torch: seconds

        return train(run, settings, signals, args.until_step)


if __name__ == "__main__":
    sys.exit(main())
