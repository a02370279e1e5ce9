"""Verify a checkpoint file and say what is in it: step, parameters, digest, extremes and norms of w, m and v.

For every matrix, too, where the shape is known: from run.toml of the run that the file lies in (its kept/ and archive/
included), else from --preset or --config. Reads the whole file once, in bounded memory. Exits 0 when a run could resume
from it and its digest line, if there is one, matches; 1 when not.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path

from andrea_cli import output, weights
from andrea_rundir import checkpoint, config, digests, inspection
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED, Refused
from andrea_rundir.layout import PRESETS, Parameter, Shape, parameters

REGIONS = {"w": "weights", "m": "Adam m", "v": "Adam v"}


def add_arguments(parser: ArgumentParser) -> None:
    """FILE, --preset or --config."""
    parser.add_argument("file", metavar="FILE", type=Path)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--preset", choices=PRESETS, help="the shape is that of this preset")
    shape.add_argument("--config", metavar="FILE", type=Path, help="the shape is [model] of this run.toml")


def run(args: Namespace) -> int:
    """Print what is in the file, or why it is no checkpoint."""
    path: Path = args.file
    header = weights.read_header(path)
    shape, odd = _shape(args, header)
    try:
        facts = inspection.inspect(path, shape)
    except checkpoint.Invalid as reason:
        raise Refused("not a usable checkpoint", where=str(path), found=str(reason)) from None
    line = recorded_digest(path)
    problem = facts.problem or odd
    if problem is None and line not in (None, facts.digest):
        problem = f"SHA-256 is {facts.digest}, SHA256SUMS says {line}"
    found = {
        "path": str(path),
        "step": facts.step,
        "n_params": facts.n_params,
        "bytes": facts.size,
        "digest": facts.digest,
        "digest_line": line,
        "finite": facts.finite,
        "regions": _figures(facts.regions),
        "tensors": {name: _figures(regions) for name, regions in facts.tensors.items()},
        "problem": problem,
    }
    matrices = [] if shape is None else _table(facts, parameters(shape))
    output.show(args, found, [*_lines(facts, line), *matrices, _verdict(problem)])
    return EXIT_OK if problem is None else EXIT_REFUSED


def _shape(args: Namespace, header: checkpoint.Header) -> tuple[Shape | None, str | None]:
    """The shape, if it is known, and what is odd about the file for its run. Refused when --preset or --config does
    not go with the file."""
    if args.preset is not None or args.config is not None:
        given = PRESETS[args.preset] if args.preset is not None else config.load(args.config).shape
        weights.check_shape(args.file, header, given, args.preset or str(args.config))
        return given, None
    run = weights.home(args.file)
    if run is None:
        return None, None
    own = config.load(run.run_toml).shape
    if own.n_params != header.n_params:
        return None, f"{header.n_params:,} parameters, the run's model has {own.n_params:,}"
    return own, None


def recorded_digest(path: Path) -> str | None:
    """The file's line in SHA256SUMS of its folder, or of the run when it lies in kept/."""
    folder = path.absolute().parent
    for place in (folder, folder.parent) if folder.name == "kept" else (folder,):
        if line := digests.read(place / "SHA256SUMS").get(path.name):
            return line
    return None


def _figures(regions: Mapping[str, inspection.Region]) -> dict[str, dict[str, float | None]]:
    """As --json has them; null where no value is finite."""
    return {
        name: {
            "min": region.low if region.low <= region.high else None,
            "max": region.high if region.low <= region.high else None,
            "norm": region.norm if region.low <= region.high else None,
            "not_finite": region.not_finite,
        }
        for name, region in regions.items()
    }


def _lines(facts: inspection.Facts, line: str | None) -> list[str]:
    known = "matches SHA256SUMS" if line == facts.digest else "no line in SHA256SUMS" if line is None else "DIFFERS"
    shown = [
        f"step        {facts.step:,}",
        f"parameters  {facts.n_params:,}{weights.preset(facts.n_params)}",
        f"size        {facts.size:,} bytes",
        f"sha256      {facts.digest} ({known})",
    ]
    return shown + [f"{REGIONS[name]:<12}{_range(region)}" for name, region in facts.regions.items()]


def _table(facts: inspection.Facts, matrices: list[Parameter]) -> list[str]:
    """A line a matrix, in the order of the file."""
    rows = [("matrix", "shape", *REGIONS.values())]
    for matrix in matrices:
        figures = (_range(facts.tensors[matrix.name][name]) for name in REGIONS)
        rows.append((matrix.name, f"{matrix.shape[0]} x {matrix.shape[1]}", *figures))
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{wide[i]}}" for i, cell in enumerate(row)).rstrip() for row in rows]


def _range(region: inspection.Region) -> str:
    bad = f", {region.not_finite:,} NOT FINITE" if region.not_finite else ""
    return f"{region.low:.3g} to {region.high:.3g}, norm {region.norm:.4g}{bad}"


def _verdict(problem: str | None) -> str:
    return "usable" if problem is None else f"NOT USABLE: {problem}"
