from __future__ import annotations

import hashlib
import math
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir import digests, scan
from andrea_rundir.checkpoint import HEADER, Header, Invalid, file_size, read_header
from andrea_rundir.faults import NoCheckpoint, Refused
from andrea_rundir.inspection import inspect
from andrea_rundir.loading import choose, load, set_aside
from andrea_rundir.names import RunDir
from andrea_rundir.publish import image_buffer

N = 3001
SIZE = file_size(N)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces in a small file, so that region boundaries fall inside of them."""
    monkeypatch.setattr(scan, "_PIECE", 4096)


def buffer(n: int = N) -> memoryview:
    return memoryview(image_buffer(file_size(n)))


def into(image: memoryview) -> scan.Look:
    """Takes a file into `image`."""

    def take(start: int, piece: memoryview) -> None:
        image[start : start + len(piece)] = piece

    return take


def ignore(start: int, piece: memoryview) -> None:
    """Takes nothing."""


def content(step: int, n: int = N) -> bytearray:
    values = np.random.default_rng(step).standard_normal(3 * n).astype("<f4")
    values[2 * n :] **= 2
    return bytearray(HEADER.pack(step, n) + values.tobytes())


def write(run: RunDir, step: int, data: bytes | None = None, *, line: bool = True) -> str:
    data = content(step) if data is None else data
    run.checkpoint(step).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    if line:
        digests.record(run.sums, run.checkpoint(step).name, digest)
    return digest


def refusal(path: Path, step: int = 100, n: int = N, digest: str | None = None) -> str:
    with pytest.raises(Invalid) as raised:
        load(path, ignore, step=step, n_params=n, digest=digest)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def poisoned(where: int, value: float) -> bytearray:
    data = content(100)
    data[8 + 4 * where : 12 + 4 * where] = np.float32(value).tobytes()
    return data


# --- a good file -------------------------------------------------------------------------------------------


def test_file_size_is_the_published_one() -> None:
    assert file_size(98_698_752) == 1_184_385_032


def test_load_gives_every_byte_and_the_digest(run: RunDir, small_pieces: None) -> None:
    digest, image = write(run, 100), buffer()
    assert load(run.checkpoint(100), into(image), step=100, n_params=N, digest=None) == digest
    assert load(run.checkpoint(100), into(image), step=100, n_params=N, digest=digest) == digest
    assert image == content(100)


@pytest.mark.parametrize("n", [1, 2, 341, 342, 1024, 174_762, 174_763, 700_001, 1_000_000])
def test_sizes_around_blocks_and_pieces(run: RunDir, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_PIECE", 1 << 20)
    digest, image = write(run, 100, content(100, n)), buffer(n)
    assert load(run.checkpoint(100), into(image), step=100, n_params=n, digest=digest) == digest
    assert hashlib.sha256(image).hexdigest() == digest
    assert inspect(run.checkpoint(100)).digest == digest


def test_load_works_without_o_direct(mount: Callable[..., Path]) -> None:
    """ramfs refuses O_DIRECT when it is set."""
    run = RunDir(mount("ramfs"))
    digest, image = write(run, 100), buffer()
    assert load(run.checkpoint(100), into(image), step=100, n_params=N, digest=digest) == digest
    assert image == content(100)


def test_read_header(run: RunDir) -> None:
    write(run, 100)
    assert read_header(run.checkpoint(100)) == Header(100, N)


# --- damage ------------------------------------------------------------------------------------------------


@given(st.integers(0, SIZE - 1), st.integers(1, 255))
def test_any_flipped_bit_is_seen(at: int, mask: int) -> None:
    data = content(100)
    digest = hashlib.sha256(data).hexdigest()
    data[at] ^= mask
    path = Path(f"/dev/shm/andrea-test-{os.getpid()}.bin")
    try:
        path.write_bytes(data)
        refusal(path, digest=digest)
    finally:
        path.unlink()


@given(st.integers(0, SIZE + 5000).filter(lambda size: size != SIZE))
def test_any_other_size_is_seen_even_without_a_digest(size: int) -> None:
    path = Path(f"/dev/shm/andrea-test-{os.getpid()}.bin")
    try:
        path.write_bytes((content(100) + bytes(5000))[:size])
        assert refusal(path) == f"{size} bytes, expected {SIZE} for {N} parameters"
        with pytest.raises(Invalid):
            read_header(path)
        with pytest.raises(Invalid):
            inspect(path)
    finally:
        path.unlink()


def test_the_header_must_say_what_the_name_and_the_model_say(run: RunDir) -> None:
    write(run, 100, content(200))
    assert refusal(run.checkpoint(100)) == "the header says step 200, expected 100"
    data = content(100)
    HEADER.pack_into(data, 0, 100, N - 1)
    write(run, 100, data)
    assert (
        refusal(run.checkpoint(100)) == f"{SIZE} bytes, expected {file_size(N - 1)} for the header's {N - 1} parameters"
    )
    write(run, 100, content(100, N + 1))
    assert refusal(run.checkpoint(100)) == f"{file_size(N + 1)} bytes, expected {SIZE} for {N} parameters"


@pytest.mark.parametrize(("step", "n"), [(-1, N), (100, 0), (100, -N)])
def test_negative_headers_are_refused(run: RunDir, step: int, n: int) -> None:
    run.checkpoint(100).write_bytes(HEADER.pack(step, n) + bytes(12 * N))
    assert "expected positive" in refusal(run.checkpoint(100))


def test_a_wrong_digest_names_both(run: RunDir) -> None:
    digest = write(run, 100)
    assert refusal(run.checkpoint(100), digest="0" * 64) == f"SHA-256 is {digest}, expected {'0' * 64}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 1021, 1022, N - 1, N, 2 * N - 1, 2 * N, 3 * N - 1])
def test_a_value_that_is_not_finite_is_named(run: RunDir, small_pieces: None, where: int, value: float) -> None:
    write(run, 100, poisoned(where, value))
    name = f"{'wmv'[where // N]}[{where % N}]"
    assert refusal(run.checkpoint(100)).startswith(f"{name} is {value}, expected a finite value")
    assert inspect(run.checkpoint(100)).problem == refusal(run.checkpoint(100))


def test_the_first_of_several_is_named(run: RunDir, small_pieces: None) -> None:
    data = poisoned(2 * N + 7, math.nan)
    data[8 + 4 * 5 : 12 + 4 * 5] = np.float32(math.inf).tobytes()
    write(run, 100, data)
    assert refusal(run.checkpoint(100)) == "w[5] is inf, expected a finite value"


def test_v_is_zero_or_more_and_minus_zero_is_zero(run: RunDir, small_pieces: None) -> None:
    write(run, 100, poisoned(2 * N + 3, -1e-30))
    assert refusal(run.checkpoint(100)).startswith(
        "v[3] is -1.0000000031710769e-30, expected a finite value, zero or more"
    )
    for where, value in ((N + 3, -1e-30), (2 * N + 3, -0.0), (2 * N, 3.4e38), (0, -3.4e38)):
        digest = write(run, 100, poisoned(where, value))
        load(run.checkpoint(100), ignore, step=100, n_params=N, digest=digest)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(), "is a folder or a device"),
        (lambda path: os.mkfifo(path), "is a folder or a device"),
        (lambda path: path.symlink_to(path.name), "cannot be read: Too many levels"),
        (lambda path: path.symlink_to("gone"), "cannot be read: No such file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a folder or a device"),
    ],
    ids=["folder", "fifo", "loop", "dangling", "device"],
)
def test_what_is_no_file_is_refused_and_hangs_nobody(run: RunDir, make: Callable[[Path], None], reason: str) -> None:
    make(run.checkpoint(100))
    assert refusal(run.checkpoint(100)).startswith(reason)
    for look in (read_header, inspect):
        with pytest.raises(Invalid, match=reason):
            look(run.checkpoint(100))


def test_a_bad_sector_is_a_reason(run: RunDir, traced: Callable[..., tuple[int, str, list[str]]]) -> None:
    write(run, 100)
    code = f"""
from pathlib import Path
from andrea_rundir.loading import *
try:
    load(Path({str(run.checkpoint(100))!r}), lambda *_: None, step=100, n_params={N}, digest=None)
except Invalid as reason:
    print(reason)
"""
    _, output, _ = traced(code, "preadv,preadv2", "preadv,preadv2:error=EIO:when=2")
    assert output == "cannot be read: Input/output error\n"


def test_a_shortage_of_the_process_is_no_fault_of_the_file(run: RunDir) -> None:
    for step in (100, 200):
        write(run, step)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 3, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(Refused, match="cannot be read now"):
            load(run.checkpoint(200), ignore, step=200, n_params=N, digest=None)
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    chosen = choose(run, ignore, n_params=N)
    assert chosen is not None and chosen.step == 200 and not chosen.passed


def test_a_file_that_shrinks_while_it_is_read_is_refused(run: RunDir, small_pieces: None) -> None:
    write(run, 100, content(100, 10_000))

    def look(start: int, piece: memoryview) -> None:
        if start == 0:  # no more than five pieces can have been read by now
            os.truncate(run.checkpoint(100), 40_000)

    with run.checkpoint(100).open("rb") as file, pytest.raises(Invalid, match="ends at byte 40000 while it is read"):
        scan.scan(file.fileno(), file_size(10_000), look)


def test_no_descriptor_is_left_open(run: RunDir) -> None:
    write(run, 100)
    (run.root / "folder").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    load(run.checkpoint(100), ignore, step=100, n_params=N, digest=None)
    inspect(run.checkpoint(100))
    read_header(run.checkpoint(100))
    refusal(run.checkpoint(100), step=200)
    refusal(run.checkpoint(100), n=N + 1)
    refusal(run.root / "folder")
    assert len(os.listdir("/proc/self/fd")) == before


# --- choosing ----------------------------------------------------------------------------------------------


def test_an_empty_run_has_nothing_to_choose(run: RunDir) -> None:
    (run.root / "step_000100.bin.bad").write_bytes(content(100))
    assert choose(run, ignore, n_params=N) is None


def test_the_newest_is_taken_by_number(run: RunDir) -> None:
    image = buffer()
    for step in (999_900, 1_000_000, 100):
        write(run, step)
    choice = choose(run, into(image), n_params=N)
    assert choice is not None
    assert (choice.step, choice.path, choice.passed) == (1_000_000, run.checkpoint(1_000_000), [])
    assert choice.has_digest_line
    assert choice.digest == hashlib.sha256(image).hexdigest()
    assert image == content(1_000_000)


def test_bad_newer_ones_are_passed_over_with_reasons_and_the_image_is_the_good_one(run: RunDir) -> None:
    write(run, 100)
    write(run, 200, line=False)
    write(run, 300)
    write(run, 400, content(399))
    write(run, 500, content(500)[:-4])
    run.checkpoint(600).mkdir()
    write(run, 700, poisoned(N + 1, math.nan))
    run.checkpoint(300).write_bytes(content(300)[:-4] + b"\0\0\0\0")
    image = buffer()
    choice = choose(run, into(image), n_params=N)
    assert choice is not None
    assert (choice.step, choice.has_digest_line) == (200, False)
    assert image == content(200)
    assert [passed.path for passed in choice.passed] == [run.checkpoint(s) for s in (700, 600, 500, 400, 300)]
    reasons = [passed.reason for passed in choice.passed]
    for reason, part in zip(
        reasons, ("the header says step 100", "folder", "bytes", "step 399", "SHA-256"), strict=True
    ):
        assert part in reason


def test_all_bad_is_never_a_new_start(run: RunDir) -> None:
    write(run, 100, b"")
    write(run, 200, poisoned(0, math.nan))
    with pytest.raises(NoCheckpoint) as raised:
        choose(run, ignore, n_params=N)
    assert raised.value.exit_code == 78
    assert raised.value.found.splitlines() == [
        "step_000200.bin: the header says step 100, expected 200",
        f"step_000100.bin: 0 bytes, expected {SIZE} for {N} parameters",
    ]


def test_unreadable_digest_lines_are_missing_ones(run: RunDir) -> None:
    write(run, 100, line=False)
    run.sums.mkdir()
    choice = choose(run, ignore, n_params=N)
    assert choice is not None
    assert not choice.has_digest_line


def test_set_aside_overwrites_and_deletes_nothing(run: RunDir) -> None:
    for expected in ("step_000100.bin.bad", "step_000100.bin.bad2", "step_000100.bin.bad3"):
        run.checkpoint(100).write_text(expected)
        assert set_aside(run.checkpoint(100)) == run.root / expected
    run.checkpoint(100).mkdir()
    (run.root / "step_000100.bin.bad4").mkdir()
    assert set_aside(run.checkpoint(100)) == run.root / "step_000100.bin.bad5"
    assert sorted(path.name for path in run.root.iterdir() if path.is_file() and path.read_text() == path.name) == [
        "step_000100.bin.bad",
        "step_000100.bin.bad2",
        "step_000100.bin.bad3",
    ]
    assert run.checkpoints() == {}


def test_set_aside_of_what_is_gone_is_an_error(run: RunDir) -> None:
    with pytest.raises(FileNotFoundError):
        set_aside(run.checkpoint(100))


# --- inspecting --------------------------------------------------------------------------------------------


def test_inspect_measures_each_region(run: RunDir, small_pieces: None) -> None:
    digest = write(run, 100)
    facts = inspect(run.checkpoint(100))
    assert (facts.step, facts.n_params, facts.size, facts.digest) == (100, N, SIZE, digest)
    assert facts.problem is None
    assert facts.finite
    values = np.frombuffer(content(100), dtype="<f4", offset=8).reshape(3, N)
    for name, region, row in zip("wmv", facts.regions.values(), values, strict=True):
        assert facts.regions[name] is region
        assert (region.low, region.high, region.not_finite) == (row.min(), row.max(), 0)
        assert region.norm == pytest.approx(float(np.linalg.norm(row.astype(np.float64))), rel=1e-12)


def test_inspect_counts_what_is_not_finite_and_goes_on(run: RunDir, small_pieces: None) -> None:
    data = content(100)
    values = np.frombuffer(data, dtype="<f4", offset=8)
    values[3], values[4], values[5], values[N] = math.nan, math.inf, -math.inf, math.nan
    write(run, 100, data)
    facts = inspect(run.checkpoint(100))
    assert [region.not_finite for region in facts.regions.values()] == [3, 1, 0]
    assert not facts.finite
    assert math.isfinite(facts.regions["w"].norm)
    assert facts.problem == "w[3] is nan, expected a finite value"


def test_inspect_minds_the_name_where_it_has_a_step(run: RunDir) -> None:
    write(run, 100)
    shutil.copy(run.checkpoint(100), run.root / "from-elsewhere.bin")
    run.checkpoint(100).rename(run.checkpoint(200))
    assert inspect(run.checkpoint(200)).problem == "the header says step 100, the name step_000200.bin"
    assert inspect(run.root / "from-elsewhere.bin").problem is None


def test_inspect_needs_little_memory(run: RunDir) -> None:
    n = 50_000_000
    with run.checkpoint(100).open("wb") as file:
        file.write(HEADER.pack(100, n))
        file.truncate(file_size(n))
    code = f"""
from pathlib import Path
from andrea_rundir.inspection import inspect
assert inspect(Path({str(run.checkpoint(100))!r})).problem is None
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(peak)  # not ru_maxrss: that begins with what the process had that started this one
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    assert int(output) < 200_000  # KiB, of which the interpreter and numpy take a sixth; the file has 600 MB
