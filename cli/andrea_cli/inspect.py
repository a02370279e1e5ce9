"""Verify a checkpoint file and say what is in it: step, parameters, digest, extremes and norms of w, m and v.

Reads the whole file once, in bounded memory. Exits 0 when a run could resume from it and its digest line, if there
is one, matches; 1 when not.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from andrea_cli import output
from andrea_rundir import checkpoint, digests
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED, Refused
from andrea_rundir.layout import PRESETS

REGIONS = {"w": "weights", "m": "Adam m", "v": "Adam v"}


def add_arguments(parser: ArgumentParser) -> None:
    """FILE."""
    parser.add_argument("file", metavar="FILE", type=Path)


def run(args: Namespace) -> int:
    """Print what is in the file, or why it is no checkpoint."""
    path: Path = args.file
    try:
        facts = checkpoint.inspect(path)
    except checkpoint.Invalid as reason:
        raise Refused("not a usable checkpoint", where=str(path), found=str(reason)) from None
    line = recorded_digest(path)
    problem = facts.problem
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
        "regions": {
            name: {"min": region.low, "max": region.high, "norm": region.norm, "not_finite": region.not_finite}
            if region.low <= region.high
            else {"min": None, "max": None, "norm": None, "not_finite": region.not_finite}
            for name, region in facts.regions.items()
        },
        "problem": problem,
    }
    output.show(args, found, _lines(facts, line, problem))
    return EXIT_OK if problem is None else EXIT_REFUSED


def recorded_digest(path: Path) -> str | None:
    """The file's line in SHA256SUMS of its folder, or of the run when it lies in kept/."""
    folder = path.absolute().parent
    for place in (folder, folder.parent) if folder.name == "kept" else (folder,):
        if line := digests.read(place / "SHA256SUMS").get(path.name):
            return line
    return None


def _lines(facts: checkpoint.Facts, line: str | None, problem: str | None) -> list[str]:
    preset = next((f" ({name})" for name, shape in PRESETS.items() if shape.n_params == facts.n_params), "")
    known = "matches SHA256SUMS" if line == facts.digest else "no line in SHA256SUMS" if line is None else "DIFFERS"
    shown = [
        f"step        {facts.step:,}",
        f"parameters  {facts.n_params:,}{preset}",
        f"size        {facts.size:,} bytes",
        f"sha256      {facts.digest} ({known})",
    ]
    for name, region in facts.regions.items():
        bad = f", {region.not_finite:,} NOT FINITE" if region.not_finite else ""
        shown.append(f"{REGIONS[name]:<12}{region.low:.4g} to {region.high:.4g}, norm {region.norm:.6g}{bad}")
    shown.append("usable" if problem is None else f"NOT USABLE: {problem}")
    return shown
