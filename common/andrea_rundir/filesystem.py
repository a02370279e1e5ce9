"""Whether a run may live at a path: on local file systems only, since locks and file events lie elsewhere.

Reads the kernel's own list of mounts; writes nothing. Imports the standard library and our faults.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from andrea_rundir.faults import BadConfig

_NETWORK = re.compile(
    r"fuse.*|nfs\d?|smb\w*|cifs|9p|afs|beegfs|ceph|coda|gfs2?|gpfs|lustre|ncpfs|ocfs2|orangefs|pvfs2"
    r"|vboxsf|virtiofs|vmhgfs|wekafs"
)
"""Types as the kernel names them. Shared folders of virtual machines behave as network file systems do."""


def refuse_network(path: Path) -> None:
    """Raises BadConfig when `path`, or the nearest existing folder above it, is not on a local file system.

    flock and inotify are not dependable over a network or through FUSE: a second trainer could start, and
    a reader would miss changes.
    """
    folder, mount_id = _mount_of(path)
    kind, mount_point = find_mount(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"), mount_id)
    if _NETWORK.fullmatch(kind):
        raise BadConfig(
            "a run directory must lie on a local file system",
            where=str(path),
            found=f"{kind}, mounted at {mount_point}" + ("" if folder == path else f" (holds {folder})"),
            expected="a local file system such as ext4, xfs or btrfs; file locks and events lie on this one",
            todo="choose a path on a local disk; finished checkpoints may be copied anywhere",
        )


def find_mount(mountinfo: str, mount_id: int) -> tuple[str, str]:
    """Type and mount point of one mount in the text of /proc/PID/mountinfo (proc_pid_mountinfo(5))."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if fields[0] == str(mount_id):
            return after.split(" ")[0], _unescape(fields[4])
    return "unknown", "?"


def _mount_of(path: Path) -> tuple[Path, int]:
    """The nearest existing folder and the kernel's number of the mount it is on.

    Asking the kernel for the number, rather than comparing path prefixes, is right for mounts that hide
    other mounts, for bind mounts and for symbolic links. Nothing here waits for a server that is gone.
    """
    given = path.absolute()
    for folder in (given, *given.parents):
        with suppress(FileNotFoundError, NotADirectoryError):
            fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                facts = Path(f"/proc/self/fdinfo/{fd}").read_text()
            finally:
                os.close(fd)
            return folder, int(facts.partition("mnt_id:")[2].split()[0])
    raise AssertionError("the root folder always exists")


def _unescape(text: str) -> str:
    """Undoes the octal escapes of space, tab, newline and backslash."""
    for octal in ("040", "011", "012", "134"):
        text = text.replace(f"\\{octal}", chr(int(octal, 8)))
    return text
