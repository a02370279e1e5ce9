"""From a policy's sources to the token shards of a run, and back: `prepare` writes them, `opened` maps them.

Passes over the text. The first reads and checks every source of every arm and takes its digest, before
anything is created: a bad source costs nothing but the reading. Where a tokenizer is to be learned, a second one takes
the text for it. The last writes the shards that are not there yet, one by one, each checked against the first pass;
killed at any instant and started again it gives the same shards. Writes `data/` (shards, `tokenizer.json`,
`sources.json`). Imports this package and `andrea_rundir`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from andrea_corpus import ledger, mix
from andrea_corpus import tokenizer as tokenizers
from andrea_corpus.duplicates import Duplicates
from andrea_corpus.encoding import check_size, write_shard
from andrea_corpus.mix import Learn
from andrea_corpus.reading import Progress, Reading
from andrea_corpus.shards import Meta, Shard, fingerprint_of, open_shard
from andrea_corpus.sources import resolve_all
from andrea_corpus.tokenizer import Tokenizer, check_fits
from andrea_rundir.faults import BadConfig, Held, Refused
from andrea_rundir.names import RunDir
from andrea_rundir.policy import Policy, parse
from andrea_rundir.publish import publish, sweep


@dataclass(frozen=True)
class Prepared:
    """One arm's shard, and what was seen while its sources were read."""

    meta: Meta
    files: int
    shared: int
    """Documents that stand in another arm as well, word for word."""
    estimated: bool
    """Whether `shared` was extrapolated from a part of the documents."""

    @property
    def fingerprint(self) -> str:
        """The shard's name."""
        return self.meta.fingerprint


class _Sources:
    """The text of all arms of a policy, to be read as often as needed."""

    def __init__(self, policy: Policy, progress: Callable[[Progress], None]) -> None:
        self.policy, self._progress = policy, progress
        self.files = resolve_all(policy.arms)

    def reading(self, name: str, act: str, document: Callable[[bytes], None] = lambda digest: None) -> Reading:
        """A pass over one arm."""
        return Reading(name, self.policy.arms[name], self.files[name], act, self._progress, document)


def prepare(
    run: RunDir,
    policy: Policy,
    tokenizer: Tokenizer | Learn,
    *,
    held_out: float,
    context: int,
    vocab_size: int | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> dict[str, Prepared]:
    """The arms, once all shards of the policy are in the run's `data/`; those already there are kept.

    `tokenizer` may be a wish for one, which a run that has a tokenizer already has fulfilled. `held_out` is the share
    of each arm that is kept from training, `context` the length of the windows, of which either part must hold one,
    `vocab_size` the model's. Raises BadConfig naming the source that cannot be used, Held when another prepare is at
    work on this run, Refused when the disk does not take the shards.
    """
    sources, duplicates = _Sources(policy, progress), Duplicates()
    has = _tokenizer_of(run.data / "tokenizer.json", tokenizer)
    surveys = {}
    for name in sources.files:
        surveys[name] = survey = sources.reading(name, "reading", lambda digest, n=name: duplicates.add(n, digest))  # type: ignore[misc]
        for _ in survey:
            pass
        if not isinstance(has, Learn):
            check_size(name, survey.bytes + survey.documents, held_out, context)  # no tokenizer makes more
    settled = _learn(sources, surveys, has) if isinstance(has, Learn) else has
    if vocab_size is not None:
        check_fits(settled, vocab_size, str(run.run_toml))
    metas = _write(run, sources, surveys, settled, held_out, context)
    shared = duplicates.shared()
    return {
        name: Prepared(meta, surveys[name].files, shared[name], duplicates.halvings > 0) for name, meta in metas.items()
    }


def opened(run: RunDir, policy_text: str, progress: Callable[[int], None] = lambda _: None) -> dict[str, Shard]:
    """The shards of a policy's arms, by arm name, verified; `progress` is told bytes verified within a shard.

    Raises BadConfig naming the arm, the fingerprint and `andrea prepare RUN` when one is missing or damaged.
    """
    policy = parse(policy_text, str(run.policy_toml), run.root)
    named = ledger.fingerprints(run, policy)
    shards = {n: open_shard(run.data, named[n], arm=n, progress=progress) for n in sorted(named)}
    digest = tokenizers.load(run.data / "tokenizer.json").digest
    for name, shard in shards.items():
        if shard.meta.tokenizer != digest:
            raise BadConfig(
                f"the shard of arm {name} ({shard.fingerprint}) was made with another tokenizer",
                where=str(run.data),
                found=f"tokenizer {shard.meta.tokenizer[:16]}",
                expected=f"tokenizer {digest[:16]}, of tokenizer.json",
                todo=ledger.TODO,
            )
    return shards


def _tokenizer_of(path: Path, wanted: Tokenizer | Learn) -> Tokenizer | Learn:
    """A run keeps the tokenizer it has: its embedding rows mean those tokens. BadConfig when another is wanted."""
    if not path.exists():
        return wanted
    found = tokenizers.load(path)
    if isinstance(wanted, Learn) or found.digest == wanted.digest:
        return found
    raise BadConfig(
        "this run has another tokenizer",
        where=str(path),
        found=f"digest {found.digest[:16]}",
        expected=f"digest {wanted.digest[:16]}",
        todo="set [tokenizer] back, or start a new run",
    )


def _learn(sources: _Sources, surveys: dict[str, Reading], wish: Learn) -> Tokenizer:
    """A tokenizer for the mix that the model will eat."""
    from andrea_corpus import bpe

    times = mix.copies(sources.policy, {name: survey.bytes for name, survey in surveys.items()}, wish)

    def texts() -> Iterator[str]:
        for name, often in times.items():
            if often:
                yield from mix.sampled(sources.reading(name, "learning"), often)

    return bpe.learn(texts(), wish.vocab_size)


def _write(
    run: RunDir,
    sources: _Sources,
    surveys: dict[str, Reading],
    tokenizer: Tokenizer,
    held_out: float,
    context: int,
) -> dict[str, Meta]:
    """What the shards say that are there, or that were written now; the policy is noted to have them."""
    metas = {}
    try:
        with _sole_writer(run.data):
            publish(run.data / "tokenizer.json", tokenizer.to_json().encode())
            for name, survey in surveys.items():
                fingerprint = fingerprint_of(tokenizer.digest, survey.content, held_out)
                metas[name] = _present(run.data, name, fingerprint) or write_shard(
                    run.data,
                    sources.reading(name, "writing"),
                    survey.content,
                    tokenizer,
                    held_out=held_out,
                    context=context,
                )
            ledger.record(run, sources.policy, {name: meta.fingerprint for name, meta in metas.items()})
    except OSError as error:
        raise Refused("the shards cannot be written", where=str(run.data), found=str(error.strerror)) from error
    return metas


@contextmanager
def _sole_writer(folder: Path) -> Iterator[None]:
    """The folder, made if need be, locked against another prepare and swept of what a killed one left."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Held("another prepare is at work on this run", where=str(folder), todo="wait for it") from error
        sweep(folder)
        yield
    finally:
        os.close(fd)


def _present(folder: Path, name: str, fingerprint: str) -> Meta | None:
    """What the shard says, if it is there, whole; a damaged one is written again."""
    try:
        return open_shard(folder, fingerprint, arm=name).meta
    except BadConfig:
        return None
