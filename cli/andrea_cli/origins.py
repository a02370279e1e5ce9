"""The checkpoint that a new run starts from: checked against its configuration, then brought into its directory.

Writes `step_NNNNNN.bin`, its line in `SHA256SUMS`, and `lineage.json`, in a run directory that is being made.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from andrea_cli import lineage, weights
from andrea_cli.export import verified
from andrea_rundir import digests
from andrea_rundir.config import RunConfig
from andrea_rundir.faults import BadConfig, about
from andrea_rundir.names import RunDir


@dataclass(frozen=True)
class Origin:
    """A verified checkpoint file."""

    path: Path
    step: int
    n_params: int
    digest: str


def check(path: Path, settings: RunConfig) -> Origin:
    """The file, read through once. BadConfig: the configuration does not go with it; Refused: it is no checkpoint."""
    header = weights.read_header(path)
    weights.check_shape(path, header, settings.shape, "[model] of the configuration")
    if settings.tokenizer.kind == "bpe" and not settings.tokenizer.path:
        raise BadConfig(
            "weights go with the tokenizer they were trained with",
            where="run.toml: tokenizer.path",
            found="no path: a new tokenizer would be trained",
            expected="the tokenizers JSON of the run that the checkpoint comes from",
            todo="`andrea export` writes it beside the weights",
        )
    if header.step >= settings.optimizer.max_steps:
        raise BadConfig(
            "the checkpoint is at the end of the run already",
            where="run.toml: optimizer.max_steps",
            found=f"step {header.step:,} of {settings.optimizer.max_steps:,}",
            expected="a max_steps past the checkpoint's step",
            todo="raise max_steps",
        )
    return Origin(path.absolute(), header.step, header.n_params, verified(path))


def bring(origin: Origin, run: RunDir) -> None:
    """Copy it; a copy that is not what was verified does not pass the trainer, which knows the digest."""
    target = run.checkpoint(origin.step)
    shutil.copyfile(origin.path, target)
    with about(target), open(target, "rb+") as file:
        target.chmod(0o640)
        os.fsync(file.fileno())
    digests.record(run.sums, target.name, origin.digest)
    lineage.write(
        run,
        "init --from",
        file=str(origin.path),
        step=origin.step,
        n_params=origin.n_params,
        digest=origin.digest,
    )
