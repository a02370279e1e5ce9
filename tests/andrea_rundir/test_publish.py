from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from andrea_rundir import publish as module
from andrea_rundir.publish import (
    BLOCK,
    PIECE,
    aside,
    create,
    fsync_dir,
    image_buffer,
    publish,
    publish_image,
    set_direct,
    sweep,
)

CALLS = "openat,write,fsync,fdatasync,rename"
PUBLISH = "from pathlib import Path; from andrea_rundir.publish import publish; publish(Path('{}'), b'data')"
Traced = Callable[..., tuple[int, str, list[str]]]
Mount = Callable[..., Path]


def image_of(size: int) -> memoryview:
    """A page-aligned buffer of which every four bytes differ."""
    image = memoryview(image_buffer(size))
    image[:] = np.arange(size // 4, dtype="<u4").data.cast("B")
    return image


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def nothing() -> None:
    pass


def test_publish_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    publish(path, b"old")
    publish(path, b"")
    assert path.read_bytes() == b""
    publish(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["state.json"]


def test_create_never_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "request"
    create(path, b"first")
    with pytest.raises(FileExistsError):
        create(path, b"second")
    assert path.read_bytes() == b"first" and names(tmp_path) == ["request"]


def test_a_name_aside_is_one_that_nothing_has(tmp_path: Path) -> None:
    path = tmp_path / "plan.jsonl"
    found = []
    for _ in range(3):
        free = aside(path)
        free.symlink_to("nowhere")
        found.append(free.name)
    assert found == ["plan.jsonl.bad", "plan.jsonl.bad2", "plan.jsonl.bad3"]
    assert aside(path, ".newer").name == "plan.jsonl.newer"


def test_publish_is_write_fsync_rename_fsync_of_the_folder(tmp_path: Path, traced: Traced) -> None:
    path = tmp_path / "x"
    status, output, calls = traced(PUBLISH.format(path), CALLS)
    assert status == 0, output
    mine = [call for call in calls if str(tmp_path) in call]
    kinds = [call.partition("(")[0] for call in mine]
    assert kinds == ["openat", "write", "fsync", "rename", "openat", "fsync"]
    assert ".tmp" in mine[2]
    assert f"<{tmp_path}>)" in mine[5]
    assert "O_CLOEXEC" in mine[0]


@pytest.mark.parametrize(
    ("call", "time", "content"),
    [("write", 1, b"old"), ("fsync", 1, b"old"), ("rename", 1, b"old"), ("fsync", 2, b"data")],
)
def test_a_kill_at_any_act_leaves_a_whole_file_and_is_swept(
    tmp_path: Path, traced: Traced, call: str, time: int, content: bytes
) -> None:
    path = tmp_path / "x"
    publish(path, b"old")
    status, _, _ = traced(PUBLISH.format(path), call, f"{call}:signal=KILL:when={time}")
    assert status == -9
    assert path.read_bytes() == content
    left = [tmp_path / name for name in names(tmp_path) if name != "x"]
    assert len(left) == (content == b"old")
    assert sweep(tmp_path) == left
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("writer", ["publish(p, b'n' * 9000)", "publish_image(p, i, sealed=lambda: None)"])
def test_a_failed_fsync_keeps_the_old_file_and_is_not_repeated(tmp_path: Path, traced: Traced, writer: str) -> None:
    path = tmp_path / "x"
    publish(path, b"old")
    code = f"""
import mmap
from pathlib import Path
from andrea_rundir.publish import *
p, i = Path({str(path)!r}), memoryview(mmap.mmap(-1, 9000))
try:
    {writer}
except OSError as error:
    print(error.errno)
"""
    _, output, calls = traced(code, "fsync", "fsync:error=EIO:when=1")
    assert output == f"{errno.EIO}\n"
    assert len(calls) == 1
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_a_failed_fsync_of_the_folder_is_told(tmp_path: Path, traced: Traced) -> None:
    path = tmp_path / "x"
    status, output, _ = traced(PUBLISH.format(path), "fsync", "fsync:error=EIO:when=2")
    assert status == 1
    assert "OSError" in output


def test_a_full_disk_keeps_the_old_file(mount: Mount) -> None:
    disk = mount("tmpfs", "size=1m")
    publish(disk / "x", b"old")
    image = image_of(3 << 20)
    for attempt in (
        lambda: publish(disk / "x", bytes(3 << 20)),
        lambda: publish_image(disk / "x", image, sealed=nothing),
    ):
        with pytest.raises(OSError) as raised:
            attempt()
        assert raised.value.errno == errno.ENOSPC
        assert (disk / "x").read_bytes() == b"old"
        assert names(disk) == ["x"]
    publish(disk / "x", b"new")


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:1000]))
    image = image_of(2 * BLOCK + 100)
    publish(tmp_path / "a", bytes(image))
    assert (tmp_path / "a").read_bytes() == image
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:BLOCK]))
    publish_image(tmp_path / "b", image, sealed=nothing)
    assert (tmp_path / "b").read_bytes() == image


def test_fsync_dir_takes_folders_only(tmp_path: Path) -> None:
    fsync_dir(tmp_path)
    (tmp_path / "x").touch()
    with pytest.raises(NotADirectoryError):
        fsync_dir(tmp_path / "x")


def test_an_image_buffer_has_exactly_the_bytes_and_starts_a_page() -> None:
    for size in (20, BLOCK, (4 << 20) + 8):
        buffer = image_buffer(size)
        assert len(buffer) == size
        assert np.frombuffer(buffer, dtype=np.uint8).ctypes.data % BLOCK == 0


@pytest.mark.parametrize("size", [20, BLOCK, BLOCK + 4, 3 * BLOCK - 4, PIECE, PIECE + BLOCK, 2 * PIECE + 12])
@pytest.mark.parametrize("kind", ["ext4 or so", "tmpfs", "ramfs"])
def test_an_image_is_written_exactly(tmp_path: Path, mount: Mount, kind: str, size: int) -> None:
    """ramfs knows no O_DIRECT at all."""
    folder = tmp_path if kind == "ext4 or so" else mount(kind)
    image, seen = image_of(size), list[int]()
    publish_image(folder / "x", image, sealed=nothing, progress=seen.append)
    assert (folder / "x").read_bytes() == image
    assert names(folder) == ["x"]
    assert seen == sorted(set(seen))
    assert seen[-1] == size
    assert all(after - before <= PIECE for before, after in zip([0, *seen], seen, strict=False))


def test_ramfs_refuses_o_direct_and_the_disk_here_does_not(tmp_path: Path, mount: Mount) -> None:
    for folder, expected in ((mount("ramfs"), False), (tmp_path, True)):
        fd = os.open(folder / "x", os.O_WRONLY | os.O_CREAT)
        assert set_direct(fd, True) is expected
        os.close(fd)


def test_a_large_image_goes_past_the_page_cache(tmp_path: Path, traced: Traced) -> None:
    code = f"""
import mmap, os
from pathlib import Path
from andrea_rundir.publish import *
image = memoryview(mmap.mmap(-1, 2 * PIECE + 12))
publish_image(Path({str(tmp_path / "x")!r}), image, sealed=lambda: os.write(1, b"sealed"))
"""
    status, output, calls = traced(code, "write,fcntl,fsync,rename")
    assert status == 0, output
    last = [call.partition("(")[0] for call in calls[-4:]]
    assert last == ["fsync", "write", "rename", "fsync"], "the caller may promise only what is durable"
    assert "sealed" in calls[-3]
    mine = [call for call in calls if "/x" in call or ".x." in call]
    direct = [i for i, call in enumerate(mine) if "F_SETFL" in call]
    assert "O_DIRECT" in mine[direct[0]]
    assert "O_DIRECT" not in mine[direct[-1]]
    big = [i for i, call in enumerate(mine) if call.startswith("write") and call.endswith(f"= {PIECE}")]
    assert len(big) == 2
    assert direct[0] < big[0] < big[1] < direct[-1]


def test_a_misaligned_buffer_is_written_buffered(tmp_path: Path) -> None:
    image = image_of(PIECE + 100)[4:]
    publish_image(tmp_path / "x", image, sealed=nothing)
    assert (tmp_path / "x").read_bytes() == image


def test_buffered_pages_are_written_back_on_the_way(mount: Mount, traced: Traced) -> None:
    code = f"""
import mmap
from pathlib import Path
from andrea_rundir.publish import *
publish_image(Path({str(mount("ramfs") / "x")!r}), memoryview(mmap.mmap(-1, 140_000_000)), sealed=lambda: None)
"""
    status, output, calls = traced(code, "fdatasync,fsync,rename")
    assert status == 0, output
    assert [call.partition("(")[0] for call in calls] == ["fdatasync", "fdatasync", "fsync", "rename", "fsync"]


def test_sealed_runs_when_all_is_written_and_before_the_rename(tmp_path: Path) -> None:
    path, image, seen = tmp_path / "x", image_of(3 * BLOCK + 8), []
    publish(path, b"old")

    def sealed() -> None:
        seen.append((path.read_bytes(), next(tmp_path.glob(".x.*.tmp")).read_bytes()))

    publish_image(path, image, sealed=sealed)
    assert seen == [(b"old", bytes(image))]
    assert path.read_bytes() == image


def test_sealed_may_refuse(tmp_path: Path) -> None:
    publish(tmp_path / "x", b"old")

    def sealed() -> None:
        raise RuntimeError("the digest line is not durable")

    with pytest.raises(RuntimeError):
        publish_image(tmp_path / "x", image_of(100), sealed=sealed)
    assert (tmp_path / "x").read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_the_dead_writers_number_may_be_ours(tmp_path: Path) -> None:
    (tmp_path / f".x.{os.getpid()}.tmp").write_bytes(b"left by a process that had our pid")
    publish(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    assert names(tmp_path) == ["x"]


def test_sweep_leaves_living_writers_and_everything_else_alone(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from andrea_rundir.publish import publish_image
def wait():
    print("sealed", flush=True)
    sys.stdin.read()
publish_image(Path({str(tmp_path / "alive")!r}), memoryview(bytearray(100)), sealed=wait)
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"sealed\n"
    others = [".x.tmp", "x.12.tmp", ".x.12.tmp.bad", "step_000100.bin"]
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".folder.12.tmp").mkdir()
    (tmp_path / ".link.12.tmp").symlink_to("step_000100.bin")
    os.mkfifo(tmp_path / ".fifo.12.tmp")
    dead = tmp_path / ".step_000200.bin.12.tmp"
    dead.write_bytes(b"half")
    assert sweep(tmp_path) == [dead]
    assert len(names(tmp_path)) == len(others) + 4
    writer.communicate()
    assert writer.returncode == 0
    assert (tmp_path / "alive").read_bytes() == bytes(100)


def test_the_rename_is_the_last_act_that_can_fail_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder whose fsync fails leaves the new file in place, and the caller is told."""

    def broken(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module, "fsync_dir", broken)
    with pytest.raises(OSError, match="Input/output"):
        publish(tmp_path / "x", b"new")
    assert names(tmp_path) == ["x"]
