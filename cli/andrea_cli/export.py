"""Write the model of a checkpoint file in a form that others load: safetensors, config, tokenizer, one file of code.

DIR is made anew: model.safetensors (float32), config.json, tokenizer.json (for the `tokenizers` library) and
model.py, which needs only torch and safetensors. FILE lies in a run, in its kept/ or in its archive/. Exits 0 when DIR
is whole; 1 when the file cannot be used or the place is taken, and then nothing is left.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from andrea_cli import output, weights
from andrea_cli.inspect import recorded_digest
from andrea_cli.newdir import building, vacant
from andrea_corpus.tokenizer import Tokenizer
from andrea_corpus.tokenizer import load as load_tokenizer
from andrea_rundir import checkpoint, inspection
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.layout import parameters
from andrea_rundir.publish import publish

NORM_EPS = 1e-5
"""As in the trainer's model (docs/run-directory.md)."""


def add_arguments(parser: ArgumentParser) -> None:
    """FILE, DIR."""
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("folder", metavar="DIR", type=Path)


def run(args: Namespace) -> int:
    """Verify, write, say what is there."""
    found = weights.of_run(args.file)
    target = vacant(args.folder, "the export")
    digest = verified(args.file)
    tokenizer = load_tokenizer(found.run.data / "tokenizer.json")
    config = _config(found, tokenizer, digest)
    with building(target, "the export") as folder:
        publish(folder / "model.safetensors", _safetensors(found), mode=0o644)
        publish(folder / "config.json", (json.dumps(config, indent=1) + "\n").encode(), mode=0o644)
        publish(folder / "tokenizer.json", tokenizer.exported().encode(), mode=0o644)
        publish(folder / "model.py", (resources.files("andrea_train") / "exported.py").read_bytes(), mode=0o644)
        folder.chmod(0o755)
    files = {path.name: path.stat().st_size for path in sorted(target.iterdir())}
    lines = [f"step {found.step:,} of {config['name']}, {config['n_params']:,} parameters, in {target}"]
    lines += [f"  {name:<18} {output.size(count)}" for name, count in files.items()]
    output.show(args, {"folder": str(target), "files": files, "config": config}, lines)
    return EXIT_OK


def verified(path: Path) -> str:
    """SHA-256 (hex) of a checkpoint that a run could resume from; Refused with the reason otherwise."""
    try:
        facts = inspection.inspect(path)
    except checkpoint.Invalid as reason:
        raise Refused("not a usable checkpoint", where=str(path), found=str(reason)) from None
    line = recorded_digest(path)
    if facts.problem is None and line in (None, facts.digest):
        return facts.digest
    raise Refused(
        "not a usable checkpoint",
        where=str(path),
        found=facts.problem or f"SHA-256 {facts.digest}",
        expected="" if facts.problem else f"SHA-256 {line} (SHA256SUMS)",
    )


def _config(found: weights.Weights, tokenizer: Tokenizer, digest: str) -> dict[str, Any]:
    shape = found.settings.shape
    return {
        "architecture": "andrea",
        "name": found.settings.run.name,
        "step": found.step,
        "n_params": shape.n_params,
        "vocab_size": shape.vocab_size,
        "d_model": shape.d_model,
        "n_heads": shape.n_heads,
        "n_layers": shape.n_layers,
        "context": shape.context,
        "norm_eps": NORM_EPS,
        "bos_token_id": tokenizer.bos,
        "tokenizer_vocab_size": tokenizer.vocab_size,
        "checkpoint_sha256": digest,
    }


def _safetensors(found: weights.Weights) -> bytes:
    """The weights by name, float32."""
    shape = found.settings.shape
    flat = np.memmap(found.path, "<f4", "r", offset=checkpoint.HEADER.size, shape=(shape.n_params,))
    tensors = {p.name: flat[p.offset : p.offset + p.size].reshape(p.shape) for p in parameters(shape)}
    return save(tensors, metadata={"format": "pt"})
