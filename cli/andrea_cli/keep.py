"""Keep the checkpoint of a step for ever: a hard link in kept/, which retention never looks at.

Costs no space until the checkpoint itself is pruned. Exits 0 when it is kept, also when it already was; 1 when
there is no checkpoint of that step.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from andrea_cli import facts, output
from andrea_cli.stock import nearest
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.names import RunDir, checkpoint_name, locate
from andrea_rundir.publish import fsync_dir

OWNERS = True


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, STEP."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("step", metavar="STEP", type=int)


def run(args: Namespace) -> int:
    """Keep it, print its path."""
    directory = locate(args.run)
    facts.settings(directory)
    path = link(directory, args.step)
    output.show(args, {"step": args.step, "path": str(path)}, [f"kept: {path}"])
    return EXIT_OK


def link(run: RunDir, step: int) -> Path:
    """The durable hard link in kept/; Refused when there is nothing to link or another file has its name."""
    source, target = run.checkpoint(step), run.kept / checkpoint_name(step)
    if not source.is_file():
        if target.is_file():
            return target
        raise Refused(
            f"no checkpoint of step {step}",
            where=str(source),
            found=nearest(run.checkpoints(), step),
            expected="a file",
            todo="name a step that has one",
        )
    run.kept.mkdir(mode=0o750, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        if not source.samefile(target):
            raise Refused(
                f"another file is already kept as step {step}",
                where=str(target),
                expected=f"no such file, or the same file as {source}",
                todo="move it to a name of its own first",
            ) from None
    fsync_dir(run.kept)
    fsync_dir(run.root)
    return target
