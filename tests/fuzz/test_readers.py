"""Every reader of a run's files by itself: a value, or the error that it is documented to raise."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_cli import lineage
from andrea_corpus import ledger, shards, tokenizer
from andrea_proxy.samples import collect
from andrea_rundir import (
    checkpoint,
    config,
    digests,
    door,
    entries,
    events,
    excerpt,
    history,
    inspection,
    loading,
    lock,
    lossfile,
    planfile,
    policy,
    sidecars,
)
from andrea_rundir.faults import Fault
from andrea_rundir.names import RunDir
from andrea_service.presence import look
from andrea_train.resume import record
from andrea_web.curves import Curves
from andrea_web.past import Past
from fuzz.effort import examples
from fuzz.hurting import bounded, hurt
from fuzz.mutations import mutated, mutated_toml
from harness.dry import desk

Read = Callable[[RunDir], Any]
Errors = tuple[type[Exception], ...]


def written_anew(run: RunDir) -> None:
    """The proxy's own reading of `.loss.json`, on a copy: it cuts what is not whole."""
    copy = run.root.parent / "copy.json"
    shutil.copy(run.loss, copy)
    opened = lossfile.LossFile(copy)
    opened.close()
    assert list(entries.read(copy)) == list(opened.since(0)), "what is left is whole"


def drawn(run: RunDir) -> None:
    """What the page keeps of it."""
    curves = Curves(run.loss)
    curves.update()
    curves.stretch(1, curves.last, 100)
    curves.arms(1, curves.last, 100)
    curves.trend(10)


def happened(run: RunDir) -> None:
    past = Past(run.events)
    past.update()
    past.update()


def followed(run: RunDir) -> None:
    reader = planfile.PlanReader(run.plan, 1)
    reader.poll()
    planfile.first_lines(run.plan)
    list(planfile.fallbacks(run.plan))
    planfile.excerpt(run.plan, 20)


def told(run: RunDir) -> None:
    list(events.starts(run.events))
    list(events.read(run.events))
    list(events.read_back(run.events))
    list(history.of_kinds(run, "probe", "audit", "snapshot"))
    events.Tail(run.events).poll()


def cut_out(run: RunDir) -> None:
    found = excerpt.origins(run.events, 20, "ab" * 32)
    list(excerpt.excerpt(run.events, found))


def opened(run: RunDir) -> None:
    header = checkpoint.read_header(run.checkpoint(40))
    loading.load(
        run.checkpoint(40),
        lambda start, piece: None,
        step=40,
        n_params=header.n_params,
        digest=digests.read(run.sums).get("step_000040.bin"),
    )


READERS: list[tuple[str, Read, Errors]] = [
    ("step_000040.bin", opened, (checkpoint.Invalid,)),
    ("step_000040.bin", lambda run: inspection.inspect(run.checkpoint(40)), (checkpoint.Invalid,)),
    ("SHA256SUMS", lambda run: digests.read(run.sums), ()),
    ("events/000001.jsonl", told, ()),
    ("events/000001.jsonl", happened, ()),
    ("events/000001.jsonl", cut_out, (Fault,)),
    ("events/000001.jsonl", look, ()),
    ("events/000001.jsonl", history.curve, ()),
    ("events/000001.jsonl", lambda run: record(run.events, 40), (Fault,)),
    ("events/000001.jsonl", lambda run: collect(run, "0-" + "0" * 12), ()),
    ("plan.jsonl", lambda run: list(planfile.read(run.plan)), (ValueError,)),
    ("plan.jsonl", lambda run: planfile.line_of(run.plan, 1), (ValueError,)),
    ("plan.jsonl", followed, ()),
    (".loss.json", lambda run: entries.latest(entries.read(run.loss)), ()),
    (".loss.json", lambda run: list(entries.read_back(run.loss)), ()),
    (".loss.json", written_anew, ()),
    (".loss.json", drawn, ()),
    (".loss.json", history.curve, ()),
    (".loss.json", lambda run: history.entries(run), ()),
    (".state.json", lambda run: sidecars.load(run.state), (sidecars.Unusable,)),
    (".samples.json", lambda run: sidecars.load(run.samples), (sidecars.Unusable,)),
    ("lineage.json", lineage.read, (Fault,)),
    ("page.json", door.read, ()),
    ("train.pid", lambda run: lock.read_pidfile(run.train_pid), ()),
    ("train.lock", lambda run: lock.probe(run.train_lock), ()),
    ("train.lock", look, ()),
    ("data/tokenizer.json", lambda run: tokenizer.load(run.data / "tokenizer.json"), (Fault,)),
    ("run.toml", lambda run: config.load(run.run_toml), (Fault,)),
    ("policy.toml", lambda run: policy.load(run.policy_toml), (Fault,)),
]


def strategy(name: str, good: bytes) -> st.SearchStrategy[bytes]:
    return mutated_toml(good) if name.endswith(".toml") else mutated(good)


@pytest.mark.parametrize(("name", "read", "errors"), READERS, ids=lambda value: value if isinstance(value, str) else "")
@given(data=st.data())
@examples(25)
def test_a_reader(run: RunDir, name: str, read: Read, errors: Errors, data: st.DataObject) -> None:
    path = run.root / name
    with hurt(path, data.draw(strategy(name, path.read_bytes()))), suppress(*errors):
        read(run)


@given(data=st.data())
@examples(25)
def test_a_list_of_shards(run: RunDir, data: st.DataObject) -> None:
    """Names in it are names of files: none outside of `data/` is opened."""
    rules = policy.load(run.policy_toml)
    path = run.data / "sources.json"
    with hurt(path, data.draw(mutated(path.read_bytes()))), suppress(Fault):
        for arm, fingerprint in ledger.fingerprints(run, rules).items():
            shards.open_shard(run.data, fingerprint, arm=arm)


@given(data=st.data())
@examples(25)
def test_a_description_of_a_shard(run: RunDir, data: st.DataObject) -> None:
    path = sorted(run.data.glob("*.train.bin"))[0]
    fingerprint = path.name.partition(".")[0]
    meta = run.data / f"{fingerprint}.json"
    with hurt(meta, data.draw(mutated(meta.read_bytes()))), suppress(Fault):
        shards.open_shard(run.data, fingerprint, arm="x")


@pytest.mark.parametrize(
    "name", ("events/000001.jsonl", "plan.jsonl", ".loss.json", ".state.json", ".samples.json", "policy.toml")
)
@given(data=st.data())
@examples(6)
def test_a_proxy_starts(
    trained: RunDir, tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """It repairs, works and ends, or says in words why it cannot."""
    root = tmp_path_factory.mktemp("start") / "run"
    shutil.copytree(trained.root, root)
    path = Path(root / name)
    path.write_bytes(data.draw(strategy(name, path.read_bytes())))
    with suppress(Fault), bounded():
        proxy = desk(RunDir(root))
        proxy.turn()
        proxy.close()
    shutil.rmtree(root)
