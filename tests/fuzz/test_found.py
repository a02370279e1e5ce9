"""What fuzzing found, each as the smallest file that did it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from andrea_cli import facts, lineage
from andrea_corpus import shards
from andrea_proxy import samples
from andrea_proxy.fold import Fold
from andrea_proxy.policies import Policies
from andrea_rundir import config, entries, events, history, jsontext, lock, lossfile, planfile, sidecars, tomlfile
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan, round_of
from andrea_web.curves import Curves
from andrea_web.guard import _body
from fuzz import loops
from fuzz.hurting import bounded, hurt
from fuzz.mutations import DEEP


@pytest.mark.parametrize("text", (b"[" * DEEP, b"1e999", b"NaN", b"-Infinity", b"9" * 30, b"9" * 5000, b"\xff"))
def test_no_value_that_others_stumble_over(text: bytes) -> None:
    with pytest.raises(ValueError):
        jsontext.loads(text)


def test_the_edges_of_64_bits() -> None:
    for value in (-(1 << 63), (1 << 63) - 1):
        assert jsontext.loads(b"%d" % value) == value
    for value in (-(1 << 63) - 1, 1 << 63):
        with pytest.raises(ValueError, match="64 bits"):
            jsontext.loads(b"%d" % value)


def test_a_sidecar_nested_too_deep_is_unusable(run: RunDir) -> None:
    with hurt(run.state, b"[" * DEEP), pytest.raises(sidecars.Unusable):
        sidecars.load(run.state)


def test_a_field_of_another_type_makes_no_event_and_no_entry() -> None:
    with pytest.raises(ValueError, match="loss"):
        events.parse(b'{"event":"step","step":1,"loss":"x"}')
    with pytest.raises(ValueError, match="no entry"):
        entries.parse(b'{"step":4294967296,"attempt":1}')


FAR = (1 << 31) - 1


def entry(step: int) -> bytes:
    figures = {"loss": 2.0, "ema": 2.0, "arms": {"a": [4, 2.0, 9]}, "lr": 1.0, "grad_norm": 1.0, "tokens": 4}
    rest = {"seconds": 1.0, "policy": "0-a", "flags": [], "time": "2026-11-29T21:30:00.000Z"}
    return json.dumps({"step": step, "attempt": 1, **figures, **rest}, separators=(",", ":")).encode()


def test_a_step_far_off_costs_no_memory(tmp_path: Path) -> None:
    """The last is one before it: no order is relied on."""
    path = tmp_path / "loss.json"
    path.write_bytes(b"[\n" + b",\n".join(map(entry, (1, FAR, 7))) + b"\n]")
    with bounded():
        loss = lossfile.LossFile(path)
        assert [(loss.at(step) or {}).get("step") for step in (1, 2, 7, FAR)] == [1, None, 7, FAR]
        loss.close()
        curves = Curves(path)
        curves.update()
        assert curves.stretch(1, FAR, 9).steps.tolist() == [1, 7, FAR]
        assert curves.arms(1, FAR, 9)[0].tolist() == [1, FAR - (FAR - 1) % 20]
        assert curves.stretch(2, 7, 9).times.tolist() == [facts.moment("2026-11-29T21:30:00.000Z")]


def test_a_gap_in_history_is_not_gone_through_round_by_round(run: RunDir) -> None:
    settings = config.load(run.run_toml)
    policies = Policies(run, context=settings.shape.context, round_steps=settings.round_steps)
    first = next(entries.read(run.loss))
    fold = Fold(policies, policies.of(first["policy"]), seed=1, round_steps=settings.round_steps)
    with bounded():
        fold.observe(first)
        fold.observe({**first, "step": FAR})
    assert fold.weighed == round_of(FAR, settings.round_steps) + 1


def test_a_round_is_no_longer_than_rounds_are(run: RunDir) -> None:
    plan = next(planfile.read(run.plan)).plan.to_json() | {"steps": None}
    assert RoundPlan.from_json(plan).steps is None
    with pytest.raises(ValueError, match="first and last"):
        RoundPlan.from_json(plan | {"last": FAR})
    for name, what in (("caps", "caps and limits"), ("cursors", "cursors")):
        with pytest.raises(ValueError, match=what):
            RoundPlan.from_json(plan | {name: {}})


@pytest.mark.parametrize("length", ("9" * 5000, "\u00b2", "-1", ""))
def test_a_length_that_is_none_is_too_much(length: str) -> None:
    async def nothing() -> dict[str, object]:
        return {"type": "http.disconnect"}

    found = loops.run(_body(Headers({"content-length": length}), nothing))
    assert found is None


def test_tables_nested_too_deep_are_told_in_words() -> None:
    with pytest.raises(BadConfig, match="too deep"):
        tomlfile.tables("[[" + "a." * 2000 + "a]]", "here")


def test_a_file_cut_by_somebody_else_is_no_endless_loop(tmp_path: Path) -> None:
    path = tmp_path / "loss.json"
    path.write_bytes(b"[\n" + entry(1) + b"\n]")
    loss = lossfile.LossFile(path)
    os.truncate(path, 20)
    with bounded(), pytest.raises(OSError, match="somebody else"):
        loss.at(1)
    loss.close()


def test_a_number_too_long_for_python_in_toml_is_told_in_words(run: RunDir) -> None:
    with pytest.raises(BadConfig):
        tomlfile.tables("a = " + "9" * 5000, "here")
    with hurt(run.run_toml, b"a = " + b"9" * 5000), pytest.raises(BadConfig):
        facts.settings(run)


def test_a_pidfile_with_a_number_too_long_holds_none(run: RunDir) -> None:
    with hurt(run.train_pid, b"9" * 5000):
        assert lock.read_pidfile(run.train_pid) is None


def test_a_shard_outside_of_its_folder_is_not_opened(run: RunDir) -> None:
    with pytest.raises(BadConfig):
        shards.open_shard(run.data, "../../outside", arm="x")


@pytest.mark.parametrize("ema", (b'"x"', b"[1", b"-", b"1e999"))
def test_a_smoothed_loss_that_is_no_number_is_not_drawn(run: RunDir, ema: bytes) -> None:
    good = run.loss.read_bytes()
    with hurt(run.loss, good.replace(b'"ema":', b'"ema":' + ema + b',"x":', 1)):
        found = history.curve(run)
    assert len(found.steps) == len(history.curve(run).steps) - 1


@pytest.mark.parametrize("audits", (b'["x"]', b'[{"step":1}]', b"7", b'{"step":1}'))
def test_samples_that_are_none_are_not_shown(run: RunDir, audits: bytes) -> None:
    assert samples.read(run)
    with hurt(run.samples, b'{"schema":1,"audits":' + audits + b"}"):
        assert samples.read(run) == []


@pytest.mark.parametrize("more", (b'"step":0,"digest":{}', b'"step":-1', b'"digest":"a"', b'"step":0,"earlier":[]'))
def test_a_lineage_of_other_types_is_told_in_words(run: RunDir, more: bytes) -> None:
    with hurt(run.lineage, b'{"schema":1,"made_by":"fork",' + more + b"}"), pytest.raises(BadConfig):
        lineage.read(run)
