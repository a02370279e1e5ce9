"""Make the token shards that a run's policy asks for, where they are not there yet, and list what is in them.

Reads every source from end to end and checks it first. With --policy the shards of another policy, for a pivot to come.
Safe beside a running trainer: shards are named by what is in them and never change; killed and started again it gives
the same ones. Exits 0 when all are there; 75 when another prepare is at work on the run; 78 when a source cannot be
used (nothing is changed then).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from andrea_cli import facts, output
from andrea_cli.progress import Bars
from andrea_corpus import prepare as shards
from andrea_corpus import tokenizer as tokenizers
from andrea_corpus.mix import Learn
from andrea_corpus.tokenizer import ByteTokenizer, Tokenizer
from andrea_rundir import config, policy
from andrea_rundir.faults import EXIT_OK
from andrea_rundir.names import RunDir, locate

OWNERS = True


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --policy."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--policy", metavar="FILE", type=Path, help="prepare this policy's sources, not the run's")


def run(args: Namespace) -> int:
    """Prepare, list the arms."""
    directory = locate(args.run)
    facts.settings(directory)
    settings = config.load(directory.run_toml)
    path = args.policy or directory.policy_toml
    rules = policy.load(path)
    rules.check_rounds(settings.round_steps, str(path))
    arms = prepare(directory, settings, rules)
    output.show(args, {"run": str(directory.root), "arms": arms}, lines(arms))
    return EXIT_OK


def prepare(run: RunDir, settings: config.RunConfig, rules: policy.Policy) -> dict[str, dict[str, Any]]:
    """Make the shards of `rules` in `run`; what is in them, by arm."""
    with Bars() as bars:
        prepared = shards.prepare(
            run,
            rules,
            tokenizer(run, settings),
            held_out=settings.probe.held_out,
            context=settings.shape.context,
            vocab_size=settings.shape.vocab_size,
            progress=bars.tell,
        )
    arms = {}
    for arm, about in sorted(prepared.items()):
        meta = asdict(about.meta)
        names = ("fingerprint", "documents", "bytes", "replaced", "train_tokens", "held_tokens")
        arms[arm] = {
            "files": about.files,
            **{name: meta[name] for name in names},
            "shared": about.shared,
            "shared_estimated": about.estimated,
        }
    return arms


def tokenizer(run: RunDir, settings: config.RunConfig) -> Tokenizer | Learn:
    """The tokenizer that a configuration asks for, or the wish for one; a given one must be there at first only."""
    wanted, optimizer, shape = settings.tokenizer, settings.optimizer, settings.shape
    if wanted.kind == "bytes":
        return ByteTokenizer()
    if not wanted.path:
        return Learn(shape.vocab_size, optimizer.max_steps, optimizer.batch_size * shape.context)
    own, path = run.data / "tokenizer.json", Path(wanted.path)
    if own.exists() and not path.exists():
        return tokenizers.load(own)
    from andrea_corpus import bpe

    return bpe.given(path)


COLUMNS = ("arm", "files", "documents", "bytes", "tokens", "bytes/token", "held out", "in other arms", "shard")


def lines(arms: dict[str, dict[str, Any]]) -> list[str]:
    """A table, a row an arm; below it what was replaced."""
    rows = [COLUMNS, *(_row(arm, about) for arm, about in arms.items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    shown = []
    for row in rows:
        cells = [f"{row[0]:<{widths[0]}}", *(f"{cell:>{wide}}" for cell, wide in zip(row[1:], widths[1:], strict=True))]
        shown.append("  ".join(cells))
    return shown + [
        f"arm {arm}: {about['replaced']:,} characters that were not UTF-8 were REPLACED by U+FFFD"
        for arm, about in arms.items()
        if about["replaced"]
    ]


def _row(arm: str, about: dict[str, Any]) -> tuple[str, ...]:
    tokens = about["train_tokens"] + about["held_tokens"]
    return (
        arm,
        f"{about['files']:,}",
        f"{about['documents']:,}",
        output.size(about["bytes"]),
        f"{tokens:,}",
        f"{about['bytes'] / tokens:.2f}",
        f"{about['held_tokens'] / tokens:.2%}",
        ("about " if about["shared_estimated"] else "") + f"{about['shared']:,}",
        about["fingerprint"],
    )
