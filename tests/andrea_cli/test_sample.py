from __future__ import annotations

from pathlib import Path

import pytest

from andrea_rundir.names import RunDir
from harness.commands import Andrea
from harness.models import model_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return model_run(tmp_path_factory.mktemp("sample") / "run")


def test_the_same_file_prompt_and_seed_give_the_same_text(andrea: Andrea, run: RunDir) -> None:
    options = ("sample", run.checkpoint(70), "--prompt", "naïve 👩", "--tokens", 12, "--count", 2)
    first = andrea(*options, "--json").json
    assert len(first["texts"]) == 2 and first["texts"][0] != first["texts"][1]
    assert (first["step"], first["tokens"], first["dropped"]) == (70, 12, 0)
    shown = andrea(*options)
    assert shown.out == "".join(f"--- {i + 1}\nnaïve 👩{text}\n" for i, text in enumerate(first["texts"]))
    assert shown.err == ""


def test_a_prompt_longer_than_the_context_is_cut_and_that_is_said(andrea: Andrea, run: RunDir) -> None:
    done = andrea("sample", run.checkpoint(70), "--prompt", "word " * 100, "--tokens", 1000, "--temperature", 0)
    assert done.code == 0 and "tokens of the prompt do not fit" in done.err and done.out.startswith("word word")


def test_a_file_that_cannot_be_used_is_refused(andrea: Andrea, run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(run.checkpoint(70).read_bytes())
    done = andrea("sample", tmp_path / "x.bin")
    assert done.code == 1 and "lies in no run" in done.err and "andrea init RUN --from" in done.err
    bad = run.checkpoint(71)
    bad.write_bytes(run.checkpoint(70).read_bytes()[:8] + b"\0\0\xc0\x7f" + run.checkpoint(70).read_bytes()[12:])
    done = andrea("sample", bad, "--json")
    assert done.code == 1 and "not finite" in done.json["error"]["found"] and done.json["error"]["where"] == str(bad)


@pytest.mark.parametrize(
    "option", [("--tokens", "0"), ("--temperature", "-1"), ("--temperature", "hot"), ("--count", "x")]
)
def test_options_that_make_no_sense(andrea: Andrea, run: RunDir, option: tuple[str, str]) -> None:
    assert andrea("sample", run.checkpoint(70), *option).code == 2
