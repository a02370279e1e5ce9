"""A run that this process trains or serves, held before anything heavy is imported: from then on a second process is
refused, and a stop finds whom to tell.

Promises that no file of a run is touched before the lock is held. Writes the lock and the pidfile. Never imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from andrea_rundir import config, filesystem, publish
from andrea_rundir.faults import Fault
from andrea_rundir.lock import Lock, demand_standing, remove_pidfile, write_pidfile
from andrea_rundir.names import RunDir
from andrea_service import identity, owner


@contextmanager
def held(run: RunDir, lock: Path, pidfile: Path) -> Iterator[config.RunConfig]:
    """The run's configuration, for as long as the lock is ours.

    Raises Refused when there is no run, or none any more, BadConfig when `run.toml` cannot be used, Held when another
    process has it.
    """
    if not run.run_toml.exists():
        raise run.missing()
    owner.become(run.root)
    filesystem.refuse_network(run.root)
    settings = config.load(run.run_toml)
    with Lock.acquire(lock, identity.me(settings.run.id)):
        publish.sweep(run.root)
        with suppress(OSError):  # an address only: a full disk must not keep the one away that can prune
            write_pidfile(pidfile, os.getpid())
        try:
            yield settings
        except (OSError, Fault):
            demand_standing()  # where the run is gone, that is what was wrong
            raise
        finally:
            with suppress(OSError):  # how the run ended counts, not whether the address could be taken away
                remove_pidfile(pidfile, os.getpid())
