"""Whose files these are: what root does to a run is done as the run's owner.

Promises that nothing the command line leaves in a run is unreadable or unwritable for the services, and that root
follows no link of theirs with root's rights. Changes this process's user; writes nothing. Standard library only.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from andrea_rundir.faults import Refused
from andrea_rundir.names import state_directory

UMASK = 0o027  # as in the units: the group may read, others nothing


def become(path: Path) -> None:
    """If we are root: from now on we are the owner of `path`, or of the nearest folder above it that exists.

    Names of runs go on to mean what they meant for root.
    """
    if os.geteuid() != 0:
        return
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    stat = nearest.stat()
    if stat.st_uid == 0:
        return
    os.environ["ANDREA_STATE"] = str(state_directory())
    try:
        entry = pwd.getpwuid(stat.st_uid)
    except KeyError:
        raise Refused(
            "the owner of this directory is no user of this machine",
            where=str(nearest),
            found=f"user id {stat.st_uid}",
            expected="a user that root can become",
            todo=f"give it to one: chown -R andrea:andrea {nearest}",
        ) from None
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)
    os.umask(UMASK)
