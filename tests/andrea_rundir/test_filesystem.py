from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from andrea_rundir import filesystem
from andrea_rundir.faults import BadConfig
from andrea_rundir.filesystem import find_mount, refuse_network

MOUNTINFO = r"""400 21 0:36 / /mnt/plain rw - tmpfs none rw
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 21 0:35 / /mnt/my\040disk\134x rw,nosuid shared:9 master:2 - nfs4 server:/export rw,vers=4.2
"""


@pytest.fixture
def fuse(tmp_path: Path) -> Iterator[Path]:
    """A real FUSE mount that nobody serves: looking at what it is must not wait for an answer from it."""
    folder = tmp_path / "fuse"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    assert libc.mount(b"andrea", os.fsencode(folder), b"fuse.sshfs", 0, options) == 0, os.strerror(ctypes.get_errno())
    yield folder
    os.close(fd)
    libc.umount2(os.fsencode(folder), 2)


def test_local_disks_are_fine(tmp_path: Path, mount: Callable[..., Path]) -> None:
    refuse_network(tmp_path)
    refuse_network(tmp_path / "not" / "there" / "yet")
    refuse_network(mount("tmpfs"))


def test_a_file_in_the_way_is_judged_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refuse_network(tmp_path / "file" / "run")


def test_fuse_is_refused_with_kind_and_mount_point(fuse: Path) -> None:
    with pytest.raises(BadConfig) as raised:
        refuse_network(fuse)
    assert f"fuse.sshfs, mounted at {fuse}" in raised.value.found


def test_a_link_is_judged_by_where_it_leads(fuse: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(fuse)
    with pytest.raises(BadConfig):
        refuse_network(tmp_path / "link")


def test_a_local_disk_over_a_network_one_is_fine(fuse: Path, mount: Callable[..., Path]) -> None:
    """A prefix of the path would find the hidden mount."""
    libc = ctypes.CDLL(None)
    assert libc.mount(b"none", os.fsencode(fuse.parent), b"tmpfs", 0, None) == 0
    try:
        fuse.mkdir()
        refuse_network(fuse)
    finally:
        libc.umount2(os.fsencode(fuse.parent), 2)


def test_find_mount_reads_optional_fields_and_escapes() -> None:
    assert find_mount(MOUNTINFO, 21) == ("ext4", "/")
    assert find_mount(MOUNTINFO, 40) == ("nfs4", "/mnt/my disk\\x")
    assert find_mount(MOUNTINFO, 400) == ("tmpfs", "/mnt/plain")


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "fuse", "fuseblk", "fuse.x"])
def test_network_kinds_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "find_mount", lambda text, number: (kind, "/mnt/far"))
    with pytest.raises(BadConfig) as raised:
        refuse_network(tmp_path / "new")
    assert raised.value.found == f"{kind}, mounted at /mnt/far (holds {tmp_path})"
    assert raised.value.exit_code == 78


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "zfs", "f2fs", "nfsd", "unknown"])
def test_local_kinds_are_not(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "find_mount", lambda text, number: (kind, "/mnt/near"))
    refuse_network(tmp_path)
