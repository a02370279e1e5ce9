"""A checkpoint file on a command line, and the run it belongs to: the file itself does not say what its shape is.

Reads only. Imports `andrea_rundir`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from andrea_rundir import checkpoint, config
from andrea_rundir.faults import Refused
from andrea_rundir.layout import PRESETS, Shape
from andrea_rundir.names import RunDir


@dataclass(frozen=True)
class Weights:
    """A readable checkpoint of a run's model."""

    path: Path
    step: int
    run: RunDir
    settings: config.RunConfig


def of_run(path: Path) -> Weights:
    """The file with its run: it lies in the run directory, in `kept/`, or in a folder of `archive/`.

    Refused when it lies in no run, is no checkpoint, or is not of the run's shape.
    """
    run = home(path)
    header = read_header(path)
    if run is None:
        raise Refused(
            "this file lies in no run, so its shape and tokenizer are not known",
            where=str(path),
            found=f"{header.n_params:,} parameters{preset(header.n_params)}",
            expected="a checkpoint inside a run directory",
            todo="make a run around it: `andrea init RUN --from FILE.bin --config FILE --policy FILE`",
        )
    settings = config.load(run.run_toml)
    check_shape(path, header, settings.shape, str(run.run_toml))
    return Weights(path, header.step, run, settings)


def home(path: Path) -> RunDir | None:
    """The run whose directory the file lies in, or in `kept/` or a folder of `archive/` of it."""
    folder = path.absolute().parent
    places = (folder, folder.parent, folder.parent.parent)
    return next((RunDir(place) for place in places if (place / "run.toml").exists()), None)


def read_header(path: Path) -> checkpoint.Header:
    """The first eight bytes, checked against the file's size; Refused otherwise."""
    try:
        return checkpoint.read_header(path)
    except checkpoint.Invalid as reason:
        raise Refused("not a usable checkpoint", where=str(path), found=str(reason)) from None


def check_shape(path: Path, header: checkpoint.Header, shape: Shape, where: str) -> None:
    """Refused when the file has not as many parameters as the model."""
    if header.n_params != shape.n_params:
        raise Refused(
            "this checkpoint is not of this model",
            where=str(path),
            found=f"{header.n_params:,} parameters{preset(header.n_params)}",
            expected=f"{shape.n_params:,} parameters ({where})",
            todo="use the [model] that the file was trained with",
        )


def preset(n_params: int) -> str:
    """` (as NAME)` when a preset has so many parameters."""
    return next((f" (as {name})" for name, shape in PRESETS.items() if shape.n_params == n_params), "")
