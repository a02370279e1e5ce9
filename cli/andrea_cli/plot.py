"""Draw a run's history into a PNG or SVG file: loss, shares of the arms, held-out bits a byte, samples, learning rate.

The raw loss is drawn faint, with every extreme, and the smoothed one over it. Marked are checkpoints on disk (kept ones
stronger), pivots, restarts, and where the run came from. Works beside a running trainer. Exits 0 when the file is
written; 1 when nothing is on record yet or the file cannot be written; 2 when it is neither .png nor .svg.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from andrea_cli import facts, output
from andrea_cli.picture import draw, gather
from andrea_rundir.faults import EXIT_OK, Refused, Usage
from andrea_rundir.names import locate
from andrea_rundir.publish import publish

FORMATS = (".png", ".svg")


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --out."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="what to write: FILE.png or FILE.svg")


def run(args: Namespace) -> int:
    """Read, draw, write."""
    directory, path = locate(args.run), args.out
    if path.suffix not in FORMATS:
        raise Usage("which kind of picture?", found=path.name, expected="a file name that ends in .png or .svg")
    facts.settings(directory)
    if not path.absolute().parent.is_dir():
        raise Refused("there is no such folder", where=str(path.absolute().parent), expected="a folder for the picture")
    picture = gather(directory)
    if not len(picture.steps):
        raise Refused(
            "nothing is on record yet",
            where=str(directory.loss),
            expected="at least one step",
            todo="look at `andrea status`",
        )
    publish(path, draw(picture, path.suffix.removeprefix(".")), mode=0o644)
    found = {"run": str(directory.root), "file": str(path), "steps": picture.count, "last": picture.last}
    found |= {"marks": picture.marks, "columns": len(picture.steps)}
    shown = f"{path}: {picture.count:,} steps, to step {picture.last:,}"
    output.show(args, found, [shown])
    return EXIT_OK
