"""Whose files these are: what root does to a run is done as the run's owner, and nobody else does anything to it.

Promises that nothing a program of ours leaves in a run is unreadable or unwritable for the services, and that root
follows no link of theirs with root's rights. Changes this process's user; writes nothing. Standard library only.
"""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Sequence
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
    nearest = _nearest(path)
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


def demand(path: Path, command: Sequence[str]) -> None:
    """Refused, with the line to type instead of `command`, when something is to be done at `path` that others may."""
    nearest = _nearest(path)
    owner = nearest.stat().st_uid
    if os.geteuid() in (0, owner) or os.access(nearest, os.W_OK):
        return
    raise Refused(
        "this is for its owner to do",
        where=str(path),
        found=f"you are {_name(os.geteuid())}",
        expected="root" if owner == 0 else f"{_name(owner)}, or root",
        todo=f"sudo {shlex.join(command)}",
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"


def _nearest(path: Path) -> Path:
    """It, or the nearest folder above it that exists, as far as we can see."""
    return next(folder for folder in (path, *path.parents) if os.access(folder, os.F_OK))
