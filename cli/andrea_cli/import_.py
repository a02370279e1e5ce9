"""Make a checkpoint file of an exported model: the same weights at step 0, with a fresh optimizer (m and v zero).

DIR is what `andrea export` wrote, or holds a config.json and a model.safetensors of the same names and shapes. A run
starts from FILE.bin by `andrea init RUN --from FILE.bin`. Exits 0 when it is written; 1 when DIR cannot be used or
FILE.bin is already there.
"""

from __future__ import annotations

import mmap
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from andrea_cli import output
from andrea_rundir import checkpoint, jsontext
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.layout import Shape, parameters
from andrea_rundir.publish import publish_image
from andrea_rundir.sections import ModelConfig

NUMBERS = ("vocab_size", "d_model", "n_heads", "n_layers", "context")


def add_arguments(parser: ArgumentParser) -> None:
    """DIR, FILE.bin, --dry-run."""
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("file", metavar="FILE.bin", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="check everything, write nothing")


def run(args: Namespace) -> int:
    """Read, check, write."""
    shape = _shape(args.folder / "config.json")
    target: Path = args.file
    if target.exists() or target.is_symlink():
        raise Refused("a file of that name is already there", where=str(target), todo="choose another name")
    if not target.absolute().parent.is_dir():
        raise Refused("there is no such folder", where=str(target.absolute().parent), expected="a folder for FILE.bin")
    image = memoryview(mmap.mmap(-1, checkpoint.file_size(shape.n_params)))
    checkpoint.HEADER.pack_into(image, 0, 0, shape.n_params)
    flat = np.frombuffer(image, "<f4", count=shape.n_params, offset=checkpoint.HEADER.size)
    _fill(flat, args.folder / "model.safetensors", shape)
    if not args.dry_run:
        publish_image(target, image, sealed=lambda: None)
    found = {"file": str(target), "n_params": shape.n_params, "step": 0, "bytes": len(image), "dry_run": args.dry_run}
    would = " would be written" if args.dry_run else ""
    shown = f"{target}{would}: {shape.n_params:,} parameters at step 0, {output.size(len(image))}"
    output.show(args, found, [shown, f"train on from it: andrea init RUN --from {target} --config FILE --policy FILE"])
    return EXIT_OK


def _shape(path: Path) -> Shape:
    """The five numbers of config.json; Refused when they are not there or make no model."""
    try:
        described = jsontext.loads(path.read_bytes())
        return ModelConfig.model_validate({name: described[name] for name in NUMBERS}).shape
    except OSError as error:
        found = error.strerror or str(error)
    except ValidationError as error:
        found = error.errors()[0]["msg"]
    except (ValueError, KeyError, TypeError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else str(error)
    raise Refused(
        "this folder does not describe a model",
        where=str(path),
        found=found,
        expected="a config.json with " + ", ".join(NUMBERS),
    )


def _fill(flat: np.ndarray[tuple[int], np.dtype[np.float32]], path: Path, shape: Shape) -> None:
    """Copy every tensor to its place; Refused naming the first that is missing, of another shape, or not finite."""
    try:
        with safe_open(path, framework="np") as file:
            names = set(file.keys())
            expected = {p.name for p in parameters(shape)}
            if odd := sorted(names ^ expected):
                what = "missing" if odd[0] in expected else "not a tensor of this model"
                raise Refused("the tensors are not those of the model", where=str(path), found=f"{odd[0]}: {what}")
            for p in parameters(shape):
                values = np.asarray(file.get_tensor(p.name))
                if values.shape != p.shape or values.dtype.kind != "f" or not np.isfinite(values).all():
                    raise Refused(
                        "a tensor is not as the model has it",
                        where=f"{path}: {p.name}",
                        found=f"shape {list(values.shape)}, {values.dtype}",
                        expected=f"shape {list(p.shape)}, finite floats",
                    )
                flat[p.offset : p.offset + p.size] = values.ravel()
    except (SafetensorError, OSError, TypeError) as error:
        raise Refused("the weights cannot be read", where=str(path), found=str(error)) from None
