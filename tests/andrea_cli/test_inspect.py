from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest

from andrea_rundir import digests
from andrea_rundir.layout import Shape, parameters
from andrea_rundir.names import RunDir
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


SHAPE = Shape(vocab_size=257, d_model=32, n_heads=2, n_layers=1, context=16)


def whole_model(path: Path) -> dict[str, np.ndarray]:
    """A checkpoint of SHAPE (that of the made-up run), every matrix with values of its own; w, m and v."""
    path.parent.mkdir(exist_ok=True)
    rng = np.random.default_rng(7)
    values = {"w": np.empty(SHAPE.n_params, "<f4"), "m": np.empty(SHAPE.n_params, "<f4")}
    for i, matrix in enumerate(parameters(SHAPE)):
        part = slice(matrix.offset, matrix.offset + matrix.size)
        values["w"][part] = rng.normal(i, 1, matrix.size)
        values["m"][part] = rng.normal(0, i + 1, matrix.size)
    values["v"] = np.square(values["m"])
    header = np.array([100, SHAPE.n_params], "<i4").tobytes()
    path.write_bytes(header + b"".join(values[name].tobytes() for name in "wmv"))
    return values


def agrees(tensors: dict[str, dict[str, dict[str, float]]], values: dict[str, np.ndarray]) -> None:
    """Every matrix of the output is that of the file."""
    assert list(tensors) == [matrix.name for matrix in parameters(SHAPE)]
    for matrix in parameters(SHAPE):
        for name in "wmv":
            part = values[name][matrix.offset : matrix.offset + matrix.size].astype(np.float64)
            assert tensors[matrix.name][name] == {
                "min": part.min(),
                "max": part.max(),
                "norm": pytest.approx(float(np.linalg.norm(part))),
                "not_finite": 0,
            }


@pytest.mark.parametrize("place", ["step_000100.bin", "kept/step_000100.bin"])
def test_every_matrix_of_a_runs_checkpoint(andrea: Andrea, made_up: RunDir, place: str) -> None:
    path = made_up.root / place
    values = whole_model(path)
    found = andrea("inspect", path, "--json").json
    agrees(found["tensors"], values)
    for name in "wmv":
        assert found["regions"][name]["min"] == values[name].min()
        assert found["regions"][name]["norm"] == pytest.approx(float(np.linalg.norm(values[name].astype("f8"))))
    assert re.search(r"(?m)^layers.0.fc1 +128 x 32 +\S+ to \S+, norm ", andrea("inspect", path).out)


def test_a_shape_that_is_given(andrea: Andrea, made_up: RunDir, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "x.bin"
    values = whole_model(path)
    assert andrea("inspect", path, "--json").json["tensors"] == {}
    agrees(andrea("inspect", path, "--config", made_up.run_toml, "--json").json["tensors"], values)
    done = andrea("inspect", path, "--preset", "andrea-tiny")
    assert done.code == 1 and "not of this model" in done.err and "884,992" in done.err
    assert andrea("inspect", path, "--preset", "andrea-13m").code == 2
    assert andrea("inspect", path, "--config", tmp_path / "none.toml").code == 78


def test_a_matrix_with_values_that_no_run_may_hold(andrea: Andrea, made_up: RunDir) -> None:
    path = made_up.checkpoint(100)
    values = np.frombuffer(b"".join(part.tobytes() for part in whole_model(path).values()), "<f4").copy()
    values[3] = values[5] = np.inf
    path.write_bytes(path.read_bytes()[:8] + values.tobytes())
    done = andrea("inspect", path, "--json")
    assert done.code == 1 and done.json["tensors"]["token_embedding"]["w"]["not_finite"] == 2
    assert done.json["tensors"]["head"]["w"]["not_finite"] == 0
    assert "2 NOT FINITE" in andrea("inspect", path).out


def test_a_checkpoint_that_is_not_of_its_runs_model(andrea: Andrea, made_up: RunDir) -> None:
    write(made_up.checkpoint(100))
    done = andrea("inspect", made_up.checkpoint(100))
    assert done.code == 1 and "NOT USABLE: 5 parameters, the run's model has" in done.out
