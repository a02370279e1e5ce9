"""From a policy's sources to the token shards of a run, and back: `prepare` writes them, `opened` maps them.

Two passes over the text. The first reads and checks every source of every arm and takes its digest, before
anything is created: a bad source costs nothing but the reading. The second writes the shards that are not there
yet, one by one, each checked against the first pass; killed at any instant and started again it gives the same
shards. Memory is bounded: pieces of 64 KiB and one group of tokens. Writes `data/` (shards, `tokenizer.json`,
`sources.json`). Imports this package and `andrea_rundir`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from andrea_corpus import tokenizer as tokenizers
from andrea_corpus.shards import Shard, ShardWriter, fingerprint_of, open_shard, split_sizes
from andrea_corpus.sources import Piece, pieces, resolve_all, size
from andrea_corpus.tokenizer import Tokenizer, token_dtype
from andrea_rundir.faults import BadConfig, Held, Refused
from andrea_rundir.names import RunDir
from andrea_rundir.policy import Arm, Policy, parse
from andrea_rundir.publish import publish, sweep

_TODO = "run `andrea prepare RUN`"


@dataclass(frozen=True)
class Progress:
    """How far one arm is; `act` is "reading" in the first pass, "writing" in the second."""

    arm: str
    act: str
    files_done: int
    files: int
    bytes_done: int
    """Of normalised text."""
    bytes_total: int
    """Of the files: a little more than their text where they have CRLF."""
    documents: int


class _Reading:
    """One pass over an arm's text: iterate over it for the pieces, then read what it counted."""

    def __init__(self, name: str, arm: Arm, files: list[Path], act: str, progress: Callable[[Progress], None]) -> None:
        self._name, self._arm, self._files, self._act, self._progress = name, arm, files, act, progress
        self._digest = hashlib.sha256()
        self.documents = self.bytes = self.replaced = 0

    def __iter__(self) -> Iterator[Piece]:
        total = sum(map(size, self._files))
        for i, file in enumerate(self._files):
            for piece in pieces(file, self._arm):
                if piece.first:
                    self._digest.update(b"\xff")  # in no UTF-8 text: documents cannot run together
                    self.documents += 1
                self._digest.update(piece.data)
                self.bytes += len(piece.data)
                self.replaced += piece.replaced
                yield piece
                self._progress(Progress(self._name, self._act, i, len(self._files), self.bytes, total, self.documents))

    @property
    def content(self) -> str:
        """SHA-256 (hex) of the text with its document boundaries."""
        return self._digest.hexdigest()


def prepare(
    run: RunDir,
    policy: Policy,
    tokenizer: Tokenizer,
    *,
    held_out: float,
    context: int,
    progress: Callable[[Progress], None] = lambda _: None,
) -> dict[str, str]:
    """Fingerprints by arm, once all shards of the policy are in the run's `data/`; those already there are kept.

    `held_out` is the share of each arm that is kept from training, `context` the length of the windows, of which
    either part must hold one. Raises BadConfig naming the source that cannot be used, Held when another prepare is at
    work on this run, Refused when the disk does not take the shards.
    """
    files = resolve_all(policy.arms)
    _check_tokenizer(run.data / "tokenizer.json", tokenizer)
    surveys = {name: _Reading(name, policy.arms[name], files[name], "reading", progress) for name in files}
    for name, survey in surveys.items():
        for _ in survey:
            pass
        _check_size(name, survey.bytes + survey.documents, held_out, context)  # no tokenizer makes more
    fingerprints = {n: fingerprint_of(tokenizer.digest, s.content, held_out) for n, s in surveys.items()}
    try:
        with _sole_writer(run.data):
            publish(run.data / "tokenizer.json", tokenizer.to_json().encode())
            for name, fingerprint in fingerprints.items():
                if not _present(run.data, name, fingerprint):
                    again = _Reading(name, policy.arms[name], files[name], "writing", progress)
                    with ShardWriter(run.data, fingerprint, tokenizer.vocab_size, held_out) as writer:
                        _encode(again, tokenizer, writer)
                        _check_same(name, files[name], surveys[name].content, again.content)
                        _check_size(name, writer.tokens, held_out, context)
                        _publish(writer, tokenizer, again)
            record(run, policy, fingerprints)
    except OSError as error:
        raise Refused("the shards cannot be written", where=str(run.data), found=str(error.strerror)) from error
    return fingerprints


def opened(run: RunDir, policy_text: str, progress: Callable[[int], None] = lambda _: None) -> dict[str, Shard]:
    """The shards of a policy's arms, by arm name, verified; `progress` is told bytes verified within a shard.

    Raises BadConfig naming the arm, the fingerprint and `andrea prepare RUN` when one is missing or damaged.
    """
    policy = parse(policy_text, str(run.policy_toml), run.root)
    path = run.data / "sources.json"
    fingerprints = _entries(path).get(sources_digest(policy))
    if fingerprints is None:
        raise BadConfig(
            "the sources of this policy are not prepared", where=str(path), found="no entry for them", todo=_TODO
        )
    shards = {n: open_shard(run.data, fingerprints[n], arm=n, progress=progress) for n in sorted(fingerprints)}
    digest = tokenizers.load(run.data / "tokenizer.json").digest
    for name, shard in shards.items():
        if shard.meta.tokenizer != digest:
            raise BadConfig(
                f"the shard of arm {name} ({shard.fingerprint}) was made with another tokenizer",
                where=str(run.data),
                found=f"tokenizer {shard.meta.tokenizer[:16]}",
                expected=f"tokenizer {digest[:16]}, of tokenizer.json",
                todo=_TODO,
            )
    return shards


def sources_digest(policy: Policy) -> str:
    """SHA-256 (hex) of the part of a policy that says what its arms are made of.

    Names, paths, formats and what is done with bytes that are not UTF-8; limits, phases, learner and comments
    may change and the same shards serve.
    """
    parts = {name: arm.model_dump(include={"path", "format", "errors"}) for name, arm in policy.arms.items()}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _encode(reading: _Reading, tokenizer: Tokenizer, writer: ShardWriter) -> None:
    """All of an arm's text as tokens, BOS before each document."""
    bos = np.array([tokenizer.bos], token_dtype(tokenizer.vocab_size))
    for piece in reading:
        if piece.first:
            writer.add(bos)
        writer.add(tokenizer.encode(piece.data))


def _publish(writer: ShardWriter, tokenizer: Tokenizer, reading: _Reading) -> None:
    """Seal the shard, with what was counted while its text was read."""
    writer.publish(
        tokenizer=tokenizer.digest,
        vocab_size=tokenizer.vocab_size,
        content=reading.content,
        documents=reading.documents,
        bytes=reading.bytes,
        replaced=reading.replaced,
    )


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


def _present(folder: Path, name: str, fingerprint: str) -> bool:
    """Whether the shard is there, whole; a damaged one is written again."""
    try:
        open_shard(folder, fingerprint, arm=name)
    except BadConfig:
        return False
    return True


def _check_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """A run keeps the tokenizer it has: its embedding rows mean those tokens."""
    if path.exists() and (found := tokenizers.load(path).digest) != tokenizer.digest:
        raise BadConfig(
            "this run has another tokenizer",
            where=str(path),
            found=f"digest {found[:16]}",
            expected=f"digest {tokenizer.digest[:16]}",
            todo="set [tokenizer] back, or start a new run",
        )


def _check_size(name: str, tokens: int, held_out: float, context: int) -> None:
    """Either part of an arm must hold a window."""
    train, held = split_sizes(tokens, held_out)
    if min(train, held) <= context:
        raise BadConfig(
            f"arm {name} has too little text",
            found=f"{tokens} tokens: {train} to train on, {held} held out",
            expected=f"more than {context} of each (the model's context)",
            todo="add text to it, raise [probe] held_out or lower [model] context",
        )


def _check_same(name: str, files: list[Path], before: str, after: str) -> None:
    """The second pass must have read what the first did."""
    if before != after:
        raise BadConfig(
            f"a source of arm {name} changed while it was read",
            where=", ".join(str(file) for file in files[:3]) + (", ..." if len(files) > 3 else ""),
            found=f"content {after[:16]}",
            expected=f"content {before[:16]}",
            todo=f"let its writer finish, then {_TODO}",
        )


def _entries(path: Path) -> dict[str, dict[str, str]]:
    """What `sources.json` says: fingerprints by arm, by digest of the sources; empty when there is no such file."""
    try:
        entries = json.loads(path.read_bytes())
        return {str(digest): {str(n): str(f) for n, f in arms.items()} for digest, arms in entries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise BadConfig(
            "the list of shards cannot be read",
            where=str(path),
            found=str(error),
            todo="restore or remove it, then " + _TODO,
        ) from error


def record(run: RunDir, policy: Policy, fingerprints: Mapping[str, str]) -> None:
    """Note that these shards are the policy's arms; what is noted of other policies stays."""
    path = run.data / "sources.json"
    entries = _entries(path) | {sources_digest(policy): dict(fingerprints)}
    publish(path, (json.dumps(entries, indent=1, sort_keys=True) + "\n").encode())
