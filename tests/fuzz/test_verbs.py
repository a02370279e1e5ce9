"""The front door: whatever one file of a run holds, `andrea` says so in words and ends with a documented code."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_cli.main import main
from andrea_rundir.names import RunDir
from fuzz.effort import examples
from fuzz.hurting import hurt
from fuzz.mutations import mutated, mutated_toml

CODES = (0, 1, 78)
FILES = (
    *("events/000001.jsonl", "plan.jsonl", ".loss.json", ".state.json", ".samples.json", "SHA256SUMS"),
    *("lineage.json", "train.lock", "train.pid", "step_000040.bin", "run.toml", "policy.toml"),
)


def called(*arguments: object) -> tuple[int, str]:
    """Exit code and both streams of a verb, called in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    assert code in CODES, err.getvalue()
    assert "Traceback" not in err.getvalue()
    return code, out.getvalue()


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@examples(4)
def test_a_hurt_file(run: RunDir, name: str, data: st.DataObject) -> None:
    path = run.root / name
    good = path.read_bytes()
    bad = data.draw(mutated_toml(good) if name.endswith(".toml") else mutated(good))
    with hurt(path, bad):
        called("status", run.root)
        _, out = called("status", run.root, "--json")
        assert json.loads(out)["schema"] == 1
        called("verify", run.root)
        if name in ("step_000040.bin", "run.toml", "SHA256SUMS"):
            called("inspect", run.root / "step_000040.bin")
