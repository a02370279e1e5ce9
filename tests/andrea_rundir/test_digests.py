from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea_rundir import digests
from andrea_rundir.names import checkpoint_name

A, B = "a" * 64, "b" * 64


def test_no_file_has_no_lines(tmp_path: Path) -> None:
    assert digests.read(tmp_path / "SHA256SUMS") == {}


def test_one_line_a_name_and_the_newest_counts(tmp_path: Path) -> None:
    path = tmp_path / "SHA256SUMS"
    digests.record(path, "step_000100.bin", A)
    digests.record(path, "step_000200.bin", A)
    digests.record(path, "step_000100.bin", B)
    assert digests.read(path) == {"step_000100.bin": B, "step_000200.bin": A}
    assert path.read_text() == f"{B}  step_000100.bin\n{A}  step_000200.bin\n"


names = st.integers(0, 10**7).map(checkpoint_name)
hexdigests = st.binary(min_size=32, max_size=32).map(bytes.hex)


@settings(max_examples=20)
@given(lines=st.dictionaries(names, hexdigests, max_size=5))
def test_what_is_recorded_is_read(tmp_path_factory: pytest.TempPathFactory, lines: dict[str, str]) -> None:
    path = tmp_path_factory.mktemp("sums") / "SHA256SUMS"
    for name, digest in lines.items():
        digests.record(path, name, digest)
    assert digests.read(path) == lines


def test_sha256sum_agrees(tmp_path: Path) -> None:
    for step in (100, 200):
        data = os.urandom(1000)
        (tmp_path / checkpoint_name(step)).write_bytes(data)
        digests.record(tmp_path / "SHA256SUMS", checkpoint_name(step), hashlib.sha256(data).hexdigest())
    digests.record(tmp_path / "SHA256SUMS", checkpoint_name(300), A)
    check = ["sha256sum", "-c", "--strict", "--ignore-missing", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / checkpoint_name(200)).write_bytes(b"damaged")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_what_sha256sum_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "step_000100.bin").write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    for flag in ("--text", "--binary"):
        output = subprocess.run(["sha256sum", flag, "step_000100.bin"], cwd=tmp_path, capture_output=True).stdout
        (tmp_path / "SHA256SUMS").write_bytes(output)
        assert digests.read(tmp_path / "SHA256SUMS") == {"step_000100.bin": digest}


def test_malformed_lines_count_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "SHA256SUMS"
    broken = [f"{A[:-1]}  short", f"{A} one-space", f"{'g' * 64}  not-hex", f"{A}  a/b", "", f"{A}  ", f"{A}0  long"]
    path.write_bytes("\n".join(broken).encode() + b"\n\xff\xfe\0\n" + f"{A.upper()}  good\n{B[:40]}".encode())
    assert digests.read(path) == {"good": A}
    digests.record(path, "next", B)
    assert path.read_text() == f"{A}  good\n{B}  next\n"


def test_forget_removes_lines_and_writes_only_when_there_are_some(tmp_path: Path) -> None:
    path = tmp_path / "SHA256SUMS"
    digests.forget(path, ["x"])
    assert not path.exists()
    for name in ("x", "y", "z"):
        digests.record(path, name, A)
    digests.forget(path, iter(["x", "z", "never"]))
    assert digests.read(path) == {"y": A}
    before = path.stat().st_ino
    digests.forget(path, ["x"])
    assert path.stat().st_ino == before
