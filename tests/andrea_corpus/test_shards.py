import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from andrea_corpus import shards
from andrea_corpus.order import window_of
from andrea_corpus.shards import (
    Shard,
    fingerprint_of,
    group_tokens,
    held_span,
    open_shard,
    read_meta,
    split_sizes,
)
from andrea_corpus.shardwriter import ShardWriter
from andrea_corpus.tokenizer import Tokens, token_dtype
from andrea_rundir.faults import BadConfig


def facts(vocab: int = 257) -> dict[str, object]:
    return {"tokenizer": "t", "vocab_size": vocab, "content": "c", "documents": 1, "bytes": 1, "replaced": 0}


def write(folder: Path, tokens: Tokens, held_out: float, *, vocab: int = 257, pieces: int = 1) -> Shard:
    """A shard of these tokens, opened."""
    fingerprint = fingerprint_of("t", "c", held_out)
    with ShardWriter(folder, fingerprint, vocab, held_out) as writer:
        for piece in np.array_split(tokens, pieces):
            writer.add(piece)
        writer.publish(**facts(vocab))
    return open_shard(folder, fingerprint, arm="prose")


def counting(n: int, dtype: str = "<u4") -> Tokens:
    """Tokens that each say where they stand."""
    return np.arange(n, dtype=dtype)


@settings(max_examples=25)
@given(st.integers(2, 60_000), st.sampled_from([0.001, 0.01, 0.1, 0.3, 0.5]), st.integers(1, 9))
def test_training_and_held_out_tokens_are_the_stream_taken_apart(
    tmp_path_factory: pytest.TempPathFactory, n: int, held_out: float, pieces: int
) -> None:
    shard = write(tmp_path_factory.mktemp("s"), counting(n), held_out, vocab=1 << 20, pieces=pieces)
    assert np.array_equal(np.sort(np.concatenate([shard.train, shard.held])), counting(n))
    assert np.all(np.diff(shard.train.astype(int)) > 0)
    assert (len(shard.train), len(shard.held)) == split_sizes(n, held_out)
    size = group_tokens(held_out)
    for group, start in enumerate(range(0, n, size)):
        length = min(size, n - start)
        first, last = held_span(shard.fingerprint, held_out, group, length)
        held = shard.held[(shard.held >= start) & (shard.held < start + length)]
        assert np.array_equal(held, np.arange(start + first, start + last))


@settings(max_examples=25)
@given(st.integers(300, 15_000), st.integers(1, 100), st.integers(0, 3))
def test_an_epoch_visits_each_window_once_and_never_a_held_out_token(
    tmp_path_factory: pytest.TempPathFactory, n: int, context: int, epoch: int
) -> None:
    shard = write(tmp_path_factory.mktemp("s"), counting(n), 0.1, vocab=1 << 20)
    windows = shard.n_windows(context)
    drawn = [window_of(1, shard.fingerprint, epoch * windows + i, windows) for i in range(windows)]
    assert sorted(drawn) == list(range(windows))
    seen = [shard.window(index, context) for index in drawn]
    assert all(len(window) == context + 1 for window in seen)
    targets = np.concatenate([window[1:] for window in seen])
    assert set(targets.tolist()) == set(shard.train[1:].tolist())  # every training token is a target
    assert len(targets) - len(shard.train) < context  # and only the end-aligned last window repeats some
    assert not np.isin(np.concatenate(seen), shard.held).any()
    probed = shard.held_windows(context, 16)
    assert not np.isin(probed, shard.train).any()


def test_the_last_window_is_end_aligned(tmp_path: Path) -> None:
    shard = write(tmp_path, counting(1000), 0.2, vocab=1 << 20)
    assert len(shard.train) == 500
    assert shard.n_windows(100) == 5
    assert shard.window(4, 100).tolist() == shard.train[399:].tolist()
    assert shard.window(1, 100).tolist() == shard.train[100:201].tolist()
    assert shard.n_windows(499) == 1
    for index in (-1, 5):
        with pytest.raises(IndexError):
            shard.window(index, 100)


def test_probe_windows_are_spread_evenly_and_at_most_as_many_as_asked(tmp_path: Path) -> None:
    shard = write(tmp_path, counting(40_000), 0.25, vocab=1 << 20)
    few = shard.held_windows(100, 4)
    assert few.shape == (4, 101)
    assert [np.flatnonzero(shard.held == row[0])[0] for row in few] == [0, 2500, 5000, 7500]
    assert len(shard.held_windows(100, 10**6)) == -(-(len(shard.held) - 1) // 100)


def test_the_held_out_share_is_met_in_many_spans(tmp_path: Path) -> None:
    tokens = np.zeros(1_000_000, "<u2")
    shard = write(tmp_path, tokens, 0.02)
    assert abs(len(shard.held) - 20_000) <= 5
    assert 1_000_000 / group_tokens(0.02) > 4
    starts = {held_span(shard.fingerprint, 0.02, group, group_tokens(0.02))[0] for group in range(5)}
    assert len(starts) == 5
    assert {held_span("other", 0.02, group, group_tokens(0.02))[0] for group in range(5)}.isdisjoint(starts)


@pytest.mark.parametrize(
    ("tokens", "expected"), [(2, (1, 1)), (1900, (950, 950)), (2050, (1025, 1025)), (10_000, (8975, 1025))]
)
def test_a_small_source_still_holds_out_a_window(tokens: int, expected: tuple[int, int]) -> None:
    assert split_sizes(tokens, 0.01) == expected


def test_a_tiny_share_keeps_memory_bounded() -> None:
    assert group_tokens(1e-9) == group_tokens(1e-5) <= 1 << 22
    assert split_sizes(10**8, 1e-9)[1] == 1025


def test_files_are_bare_little_endian_tokens(tmp_path: Path) -> None:
    shard = write(tmp_path, np.arange(300, dtype="<u2"), 0.1)
    data = (tmp_path / f"{shard.fingerprint}.train.bin").read_bytes()
    assert data == b"".join(int(token).to_bytes(2, "little") for token in shard.train)
    assert hashlib.sha256(data).hexdigest() == shard.meta.train_sha256
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{shard.fingerprint}.{end}" for end in ("held.bin", "json", "train.bin")
    ]
    wide = write(tmp_path, np.array([0, 70_000] * 9, "<u4"), 0.2, vocab=70_001)
    assert wide.train.dtype == token_dtype(70_001) == np.dtype("<u4")


def test_a_writer_that_is_left_early_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), ShardWriter(tmp_path, "f", 257, 0.01) as writer:
        writer.add(np.zeros(10**6, "<u2"))
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_fingerprints_change_with_each_of_their_parts() -> None:
    assert fingerprint_of("t", "c", 0.01) == "987bee1730d2ab38"
    others = {fingerprint_of("u", "c", 0.01), fingerprint_of("t", "d", 0.01), fingerprint_of("t", "c", 0.02)}
    assert len(others | {"987bee1730d2ab38"}) == 4


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("part", ["train.bin", "held.bin", "json"])
@pytest.mark.parametrize("how", ["missing", "short", "long", "flipped", "folder"])
def test_what_is_missing_or_damaged_is_named_with_arm_and_remedy(tmp_path: Path, part: str, how: str) -> None:
    fingerprint = write(tmp_path, np.arange(2000, dtype="<u2") % 257, 0.1).fingerprint
    path = tmp_path / f"{fingerprint}.{part}"
    if how == "short":
        path.write_bytes(path.read_bytes()[:-2])
    elif how == "long":
        path.write_bytes(path.read_bytes() + b"{}")
    elif how == "flipped":
        damage(path)
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
    with pytest.raises(BadConfig) as error:
        open_shard(tmp_path, fingerprint, arm="prose")
    assert "prose" in error.value.what
    assert fingerprint in error.value.what
    assert error.value.where == str(path)
    assert error.value.todo == "run `andrea prepare RUN`"


def test_a_json_of_another_shard_or_version_is_refused(tmp_path: Path) -> None:
    fingerprint = write(tmp_path, np.arange(2000, dtype="<u2") % 257, 0.1).fingerprint
    path = tmp_path / f"{fingerprint}.json"
    for change in ({"version": 2}, {"content": "d"}, {"fingerprint": "0" * 16}, {"extra": 1}):
        meta = json.loads(path.read_text())
        (tmp_path / "kept").write_text(path.read_text())
        path.write_text(json.dumps(meta | change))
        with pytest.raises(ValueError):
            read_meta(tmp_path, fingerprint)
        path.write_text((tmp_path / "kept").read_text())
    assert read_meta(tmp_path, "0" * 16) is None


def test_verifying_tells_how_far_it_is(tmp_path: Path) -> None:
    fingerprint = write(tmp_path, np.zeros(10**5, "<u2"), 0.1).fingerprint
    told: list[int] = []
    open_shard(tmp_path, fingerprint, arm="prose", progress=told.append)
    assert told[-1] == 2 * 10**5
    assert told == sorted(told)
    assert shards._PIECE >= 1 << 20
