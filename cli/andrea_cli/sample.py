"""Let the model of a checkpoint file go on with a text, on the CPU; the same file, text and seed give the same words.

FILE lies in a run, in its kept/ or in its archive/: the run says which shape and tokenizer it has. Exits 0 with the
text on stdout; 1 when the file cannot be used.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import asdict
from pathlib import Path

from andrea_cli import output, weights
from andrea_cli.arguments import count
from andrea_cli.ask import ask
from andrea_rundir.faults import EXIT_OK


def add_arguments(parser: ArgumentParser) -> None:
    """FILE, --prompt, --tokens, --temperature, --seed, --count."""
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--prompt", metavar="TEXT", default="", help="what it goes on with (default: nothing)")
    parser.add_argument("--tokens", metavar="N", type=count, default=128, help="how many tokens (default 128)")
    parser.add_argument(
        "--temperature", metavar="T", type=_temperature, default=0.8, help="0 takes the likeliest (default 0.8)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="another seed, another text")
    parser.add_argument("--count", metavar="N", type=count, default=1, help="how many texts (default 1)")


def run(args: Namespace) -> int:
    """Print the prompt and what follows."""
    found = weights.of_run(args.file)
    answer = ask(
        "complete",
        {
            "file": str(args.file),
            "tokenizer": str(found.run.data / "tokenizer.json"),
            "shape": asdict(found.settings.shape),
            **{name: getattr(args, name) for name in ("prompt", "tokens", "temperature", "seed", "count")},
        },
    )
    if answer["dropped"]:
        print(f"andrea: warning: the first {answer['dropped']} tokens of the prompt do not fit", file=sys.stderr)
    texts = [args.prompt + text for text in answer["texts"]]
    lines = texts if len(texts) == 1 else [f"--- {i + 1}\n{text}" for i, text in enumerate(texts)]
    output.show(args, {"file": str(args.file), "step": found.step, "prompt": args.prompt, **answer}, lines)
    return EXIT_OK


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a temperature: 0 or more")
    return value
