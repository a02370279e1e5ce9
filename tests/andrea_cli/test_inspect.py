from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from andrea_rundir import digests
from harness.commands import Andrea

N = 5


def write(path: Path, *, step: int = 100, values: list[float] | None = None) -> bytes:
    """A checkpoint of five parameters: w = -2 .. 2, m = 0.5, v = 0.25."""
    numbers = values if values is not None else [-2, -1, 0, 1, 2] + [0.5] * N + [0.25] * N
    data = np.array([step, N], "<i4").tobytes() + np.array(numbers, "<f4").tobytes()
    path.write_bytes(data)
    return data


def test_a_good_file(andrea: Andrea, tmp_path: Path) -> None:
    path = tmp_path / "step_000100.bin"
    digest = hashlib.sha256(write(path)).hexdigest()
    done = andrea("inspect", path)
    assert done.code == 0 and done.out.endswith("usable\n") and "no line in SHA256SUMS" in done.out
    digests.record(tmp_path / "SHA256SUMS", path.name, digest)
    found = andrea("inspect", path, "--json").json
    assert (found["step"], found["n_params"], found["bytes"]) == (100, 5, 68)
    assert found["digest"] == found["digest_line"] == digest and found["problem"] is None
    assert found["regions"]["w"] == {"min": -2, "max": 2, "norm": pytest.approx(10**0.5), "not_finite": 0}
    (tmp_path / "kept").mkdir()
    os.link(path, tmp_path / "kept" / path.name)
    assert "matches SHA256SUMS" in andrea("inspect", tmp_path / "kept" / path.name).out


def test_a_digest_line_that_says_otherwise(andrea: Andrea, tmp_path: Path) -> None:
    path = tmp_path / "step_000100.bin"
    write(path)
    digests.record(tmp_path / "SHA256SUMS", path.name, "0" * 64)
    done = andrea("inspect", path)
    assert done.code == 1 and "DIFFERS" in done.out and "NOT USABLE: SHA-256 is" in done.out


def test_values_that_no_run_may_hold(andrea: Andrea, tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write(path, values=[np.nan] * N + [0.5] * N + [0.25] * N)
    done = andrea("inspect", path)
    assert done.code == 1 and "5 NOT FINITE" in done.out and "w[0] is nan" in done.out
    found = andrea("inspect", path, "--json").json
    assert found["regions"]["w"] == {"min": None, "max": None, "norm": None, "not_finite": 5}
    assert found["finite"] is False
    write(path, values=[1.0] * 2 * N + [0.25, -0.25, 0, 0, 0])
    assert "v[1] is -0.25" in andrea("inspect", path).out


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "67 bytes, expected 68"),
        (lambda path: path.write_bytes(b""), "0 bytes"),
        (lambda path: path.unlink(), "No such file"),
        (lambda path: (path.unlink(), path.mkdir()), "folder"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "expected a regular file"),
    ],
)
def test_what_is_no_checkpoint(andrea: Andrea, tmp_path: Path, spoil: object, said: str) -> None:
    path = tmp_path / "step_000100.bin"
    write(path)
    assert callable(spoil)
    spoil(path)
    done = andrea("inspect", path)
    assert done.code == 1 and "not a usable checkpoint" in done.err and said in done.err
    assert str(path) in done.err


def test_a_name_that_says_another_step(andrea: Andrea, tmp_path: Path) -> None:
    path = tmp_path / "step_000200.bin"
    write(path)
    done = andrea("inspect", path)
    assert done.code == 1 and "the header says step 100" in done.out
