from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from andrea_cli.main import VERBS
from andrea_rundir.names import RunDir
from harness.commands import Andrea, Wish

LIGHT = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None
from andrea_cli.main import main
sys.exit(main())
"""


def without(modules: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """`andrea` in a process that cannot import these modules."""
    command = [sys.executable, "-c", LIGHT, modules, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_names_every_verb_and_the_exit_codes(andrea: Andrea) -> None:
    done = andrea("--help")
    assert done.code == 0 and "exit codes: 0 done" in done.out
    for verb, summary in VERBS.items():
        assert verb in done.out and summary in done.out


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_json_and_exit_codes(andrea: Andrea, verb: str) -> None:
    done = andrea(verb, "--help")
    assert done.code == 0
    for text in ("--json", "exit codes:", "xits 0"):
        assert text in done.out


@pytest.mark.parametrize(
    ("verb", "option", "value"),
    [
        *(("check", "--seconds", text) for text in ("nan", "inf", "0", "-1", "x")),
        *((verb, "--timeout", "nan") for verb in ("checkpoint", "stop")),
        *(("samples", "--last", text) for text in ("0", "-1", "x")),
        ("status", "--watch", "nan"),
        ("sample", "--tokens", "0"),
    ],
)
def test_a_value_that_is_none_is_refused(andrea: Andrea, verb: str, option: str, value: str) -> None:
    done = andrea(verb, "run", f"{option}={value}")
    assert done.code == 2 and value in done.err


def test_a_wrong_verb_gets_the_nearest(andrea: Andrea) -> None:
    done = andrea("statsu", "x")
    assert done.code == 2 and "did you mean status?" in done.err
    assert andrea("qqq").code == 2 and andrea().code == 2
    assert andrea("status").code == 2 and andrea("keep", "run", "ten").code == 2


def test_version(andrea: Andrea) -> None:
    assert andrea("--version").out.startswith("andrea-train ")


def test_errors_are_json_too(andrea: Andrea, tmp_path: Path) -> None:
    for verb in ("status", "stop", "checkpoint", "prepare"):
        done = andrea(verb, tmp_path / "none", "--json")
        assert done.code == 1
        error = done.json["error"]
        assert error["what"] == "no run here" and error["where"] == f"{tmp_path}/none"
        assert error["exit_code"] == 1 and error["todo"]
        assert done.err.startswith("andrea: no run here\n")


def test_light_verbs_need_neither_torch_nor_numpy_nor_pydantic(made_up: RunDir) -> None:
    heavy = "torch,numpy,pydantic,rich,matplotlib"
    assert without(heavy, "--help").returncode == 0
    assert json.loads(without(heavy, "list", "--json").stdout)["runs"] is not None
    done = without(heavy, "status", made_up.root, "--json")
    assert json.loads(done.stdout)["state"] == "stopped"
    assert "not signalled" in without(heavy, "checkpoint", made_up.root).stderr
    assert "never started" in without(heavy, "stop", made_up.root).stdout
    assert "no checkpoint of step 3" in without(heavy, "keep", made_up.root, 3).stderr


def test_no_verb_needs_torch(wish: Wish, made_up: RunDir) -> None:
    assert without("torch", *wish.arguments).returncode == 0
    assert without("torch", "prepare", wish.run).returncode == 0
    assert "not a usable checkpoint" in without("torch", "inspect", made_up.run_toml).stderr


def test_a_path_that_is_not_text_is_shown(made_up: RunDir) -> None:
    odd = Path(os.fsdecode(os.fsencode(made_up.root) + b"\xff"))
    made_up.root.rename(odd)
    (odd / "step_000000.bin").write_bytes(b"x")
    done = without("torch", "stop", odd)
    assert done.returncode == 0 and rf"last checkpoint: {made_up.root}\udcff/step_000000.bin" in done.stdout
    assert without("torch", "status", f"{odd}none").stderr.count(r"\udcff") == 1
