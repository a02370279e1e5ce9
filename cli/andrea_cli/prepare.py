"""Make the token shards that a run's policy asks for, where they are not there yet, and list them.

Reads every source from end to end and checks it first. Safe beside a running trainer: shards are named by what is in
them and never change. Exits 0 when all are there; 78 when a source cannot be used (nothing is changed then).
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from typing import Any, Self

from andrea_cli import facts, output
from andrea_corpus import prepare as shards
from andrea_corpus.shards import read_meta
from andrea_corpus.tokenizer import ByteTokenizer, Tokenizer
from andrea_rundir import config, policy
from andrea_rundir.faults import EXIT_OK, BadConfig
from andrea_rundir.names import RunDir, locate

REDRAW_SECONDS = 0.2


def add_arguments(parser: ArgumentParser) -> None:
    """RUN."""
    parser.add_argument("run", metavar="RUN")


def run(args: Namespace) -> int:
    """Prepare, list the arms."""
    directory = locate(args.run)
    facts.settings(directory)
    settings, rules = config.load(directory.run_toml), policy.load(directory.policy_toml)
    rules.check_rounds(settings.round_steps, str(directory.policy_toml))
    arms = prepare(directory, settings, rules)
    output.show(args, {"run": str(directory.root), "arms": arms}, lines(arms))
    return EXIT_OK


def prepare(run: RunDir, settings: config.RunConfig, rules: policy.Policy) -> dict[str, dict[str, Any]]:
    """Make the shards of `rules` in `run`; what is in them, by arm."""
    with _Teller() as teller:
        fingerprints = shards.prepare(
            run,
            rules,
            tokenizer(settings),
            held_out=settings.probe.held_out,
            context=settings.shape.context,
            progress=teller.tell,
        )
    arms = {}
    for arm, fingerprint in sorted(fingerprints.items()):
        meta = read_meta(run.data, fingerprint)
        assert meta is not None, "prepare has just made it"
        arms[arm] = {
            "fingerprint": fingerprint,
            "bytes": meta.bytes,
            "documents": meta.documents,
            "replaced": meta.replaced,
            "train_tokens": meta.train_tokens,
            "held_tokens": meta.held_tokens,
        }
    return arms


def tokenizer(settings: config.RunConfig) -> Tokenizer:
    """The tokenizer that a configuration asks for."""
    if settings.tokenizer.kind != "bytes":
        raise BadConfig(
            "this version has the bytes tokenizer only",
            where="run.toml: tokenizer.kind",
            found=settings.tokenizer.kind,
            expected="bytes",
        )
    return ByteTokenizer()


def lines(arms: dict[str, dict[str, Any]]) -> list[str]:
    """A line an arm."""
    wide = max(map(len, arms))
    return [
        f"{arm:<{wide}}  {about['fingerprint']}  {about['documents']:,} documents, "
        f"{about['train_tokens']:,} tokens to train on, {about['held_tokens']:,} held out"
        + (f", {about['replaced']:,} characters REPLACED" if about["replaced"] else "")
        for arm, about in arms.items()
    ]


class _Teller:
    """Progress on a terminal, in one line that moves and goes at the end; silent elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draw("")

    def tell(self, progress: shards.Progress) -> None:
        """How far one arm is."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REDRAW_SECONDS
            self._draw(f"{progress.act} {progress.arm}: {output.size(progress.bytes_done)}")

    def _draw(self, text: str) -> None:
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
