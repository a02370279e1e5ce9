from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from andrea_corpus.prepare import opened
from andrea_rundir import config, filesystem, policy
from andrea_rundir.names import RunDir
from harness import until
from harness.commands import Andrea, Wish, snapshot
from harness.processes import TESTS, stands_still


def test_a_run_is_made_complete(andrea: Andrea, wish: Wish) -> None:
    wish.run.parent.mkdir()
    done = andrea(*wish.arguments, "--json")
    assert done.code == 0 and done.err == ""
    facts = done.json
    assert facts["run"] == str(wish.run) and facts["n_params"] == 257 * 64 + 16 * 32 + 12 * 32 * 32
    assert (facts["device"], facts["precision"], facts["threads"]) == ("cpu", "fp32", 1)
    assert facts["arms"]["a"]["documents"] == 1 and facts["arms"]["a"]["bytes"] == 4400
    assert sorted(os.listdir(wish.run.parent)) == ["one"]
    assert sorted(os.listdir(wish.run)) == ["data", "policy.toml", "run.toml"]
    settings = config.load(wish.run / "run.toml")
    assert re.fullmatch("[0-9a-f]{32}", settings.run.id) and settings.run.id == facts["id"]
    assert settings.run.name == "one" and settings.optimizer.max_steps == 40
    rules = policy.load(wish.run / "policy.toml")
    assert rules.arms["b"].path == f"{wish.folder}/texts/*.md" and rules.arms["b"].floor == 0.25
    shards = opened(RunDir(wish.run), (wish.run / "policy.toml").read_text())
    assert {arm: shard.fingerprint for arm, shard in shards.items()} == {
        arm: about["fingerprint"] for arm, about in facts["arms"].items()
    }


def test_a_run_is_named_where_the_file_does_not_and_two_runs_have_two_ids(andrea: Andrea, wish: Wish) -> None:
    first = andrea(*wish.arguments, "--json").json
    wish.add(wish.config, "[run]\n", '[run]\nname = "own"\n')
    wish.arguments[1] = other = wish.folder / "zwölf 12"
    second = andrea("init", other, "--config", wish.config, "--policy", wish.policy, "--json").json
    assert second["name"] == "own" and first["id"] != second["id"]
    wish.add(wish.config, 'name = "own"\n', "")
    third = andrea("init", wish.folder / "zwölf 13", "--config", wish.config, "--policy", wish.policy, "--json")
    assert third.json["name"] == "zw_lf_13"


def test_an_empty_directory_may_be_there(andrea: Andrea, wish: Wish) -> None:
    wish.run.mkdir(parents=True)
    assert andrea(*wish.arguments).code == 0
    assert (wish.run / "run.toml").is_file()


SPOILT = {
    "heads": ("config", "n_heads = 2", "n_heads = 3", ["run.toml: model.n_heads", "found:    3", "a divisor of"]),
    "n_params": (
        "config",
        "d_model = 32",
        "d_model = 16384",
        ["run.toml: model", "found:    n_params =", "at most 2,147,483,647"],
    ),
    "unknown key": (
        "config",
        "max_steps",
        "max_stepz",
        ["run.toml: optimizer.max_stepz", "found:    max_stepz", "did you mean max_steps?"],
    ),
    "unknown arm key": ("policy", "floor", "flor", ["policy.toml: arms.b.flor", "did you mean floor?"]),
    "not TOML": ("config", "[run]", "[run", ["run.toml", "not valid TOML", "line 1"]),
    "limits": (
        "policy",
        "floor = 0.25",
        "floor = 0.25\n[arms.c]\npath = 'texts/c'\nfloor = 0.8",
        ["policy.toml: arms", "1.05", "at most 1"],
    ),
    "phase": (
        "policy",
        "[arms.a]",
        "[[phases]]\nname = 'p'\nuntil_step = 15\n[arms.a]",
        ["policy.toml: phases.0.until_step", "found:    15", "the nearest is 20"],
    ),
    "missing source": ("policy", "texts/a.txt", "texts/none.txt", ["texts/none.txt", "No such file"]),
    "no match": ("policy", "texts/*.md", "texts/*.rst", ["texts/*.rst", "expected:"]),
    "two arms": (
        "policy",
        "texts/*.md",
        "texts",
        ["under two arms", "texts/a.txt", "found:    arms a and b", "expected: one arm a file"],
    ),
    "tokenizer": (
        "config",
        "[model]",
        "[tokenizer]\nkind = 'bpe'\npath = 'none.json'\n[model]",
        ["none.json", "No such file", "to do:"],
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_bad_files_are_named_and_nothing_is_made(andrea: Andrea, wish: Wish, case: str) -> None:
    which, old, new, said = SPOILT[case]
    wish.add(wish.config if which == "config" else wish.policy, old, new)
    refused(andrea, wish, 78, *said)


def refused(andrea: Andrea, wish: Wish, code: int, *said: str) -> None:
    """Init fails with all of this in its message, and the folder is as it was, parents of the run included."""
    before = snapshot(wish.folder)
    done = andrea(*wish.arguments)
    assert done.code == code and done.out == ""
    for text in said:
        assert text in done.err
    assert snapshot(wish.folder) == before


def test_a_dry_run_checks_and_makes_nothing(andrea: Andrea, wish: Wish) -> None:
    done = andrea(*wish.arguments, "--dry-run")
    assert done.code == 0 and f"would make {wish.run}\n" in done.out and "a: 1 files" in done.out
    found = andrea(*wish.arguments, "--dry-run", "--json").json
    assert found["dry_run"] and found["files"] == {"a": 1, "b": 1} and found["device"] == "cpu"
    assert not wish.run.exists()
    wish.source.unlink()
    assert andrea(*wish.arguments, "--dry-run").code == 78


def test_an_empty_source(andrea: Andrea, wish: Wish) -> None:
    wish.source.write_text("")
    refused(andrea, wish, 78, str(wish.source), "found:    an empty file", "expected:")


def test_a_source_too_small_for_one_window(andrea: Andrea, wish: Wish) -> None:
    wish.source.write_text("short")
    refused(andrea, wish, 78, "arm a has too little text", "6 tokens", "more than 16")


def test_bytes_that_are_not_utf8(andrea: Andrea, wish: Wish) -> None:
    wish.source.write_bytes(b"good text\n" * 200 + b"\xff\xfe")
    refused(andrea, wish, 78, f"{wish.source}, byte 2000", "0xff", "expected: UTF-8")


def test_a_fifo(andrea: Andrea, wish: Wish) -> None:
    wish.source.unlink()
    os.mkfifo(wish.source)
    done = andrea(*wish.arguments)
    assert done.code == 78 and "a FIFO" in done.err and not wish.run.parent.exists()


def test_a_source_that_may_not_be_read(wish: Wish) -> None:
    wish.source.chmod(0)
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*drop, sys.executable, "-m", "andrea_cli.main", *map(str, wish.arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 78 and "Traceback" not in done.stderr
    assert str(wish.source) in done.stderr and "found:    Permission denied" in done.stderr
    assert not wish.run.parent.exists()


def test_a_run_directory_that_is_not_empty(andrea: Andrea, wish: Wish) -> None:
    wish.run.mkdir(parents=True)
    (wish.run / "precious").write_text("x")
    (wish.run / "step_000100.bin").write_text("y")
    refused(andrea, wish, 1, "not empty", str(wish.run), "found:    precious and 1 more", "expected:")


def test_a_run_directory_that_is_a_file_or_a_dangling_link(andrea: Andrea, wish: Wish) -> None:
    wish.run.parent.mkdir()
    wish.run.write_text("x")
    refused(andrea, wish, 1, "is a file")
    wish.run.unlink()
    wish.run.symlink_to(wish.folder / "real")
    assert andrea(*wish.arguments).code == 0
    assert (wish.folder / "real" / "run.toml").is_file()


def test_a_path_through_a_file(andrea: Andrea, wish: Wish) -> None:
    wish.run.parent.write_text("x")
    refused(andrea, wish, 1, "cannot be made", "Not a directory")


def test_a_mount_point(andrea: Andrea, wish: Wish) -> None:
    wish.run.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "andrea-test", wish.run], check=True)
    try:
        refused(andrea, wish, 1, "is a mount point", str(wish.run))
    finally:
        subprocess.run(["umount", wish.run], check=True)


def test_a_network_file_system(andrea: Andrea, wish: Wish, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "_NETWORK", re.compile(".*"))  # whatever the tests run on counts as one
    refused(andrea, wish, 78, "local file system", str(wish.run), "mounted at", "expected:")


def test_a_full_disk(andrea: Andrea, wish: Wish) -> None:
    wish.run.parent.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "andrea-test", wish.run.parent], check=True)
    try:
        done = andrea(*wish.arguments)
        assert done.code == 1 and "No space left on device" in done.err
        assert os.listdir(wish.run.parent) == []
    finally:
        subprocess.run(["umount", wish.run.parent], check=True)


@pytest.mark.parametrize(
    "options",
    [[], ["--demo", "--config", "x"], ["--demo", "--policy", "x"], ["--config", "x"], ["--policy", "x"]],
)
def test_it_takes_the_demo_or_two_files(andrea: Andrea, tmp_path: Path, options: list[str]) -> None:
    done = andrea("init", tmp_path / "run", *options)
    assert done.code == 2 and "--demo, or --config FILE and --policy FILE" in done.err
    assert os.listdir(tmp_path) == []


def test_config_files_that_cannot_be_read(andrea: Andrea, wish: Wish) -> None:
    wish.config.unlink()
    refused(andrea, wish, 78, "run.toml", "No such file or directory")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing(wish: Wish, number: signal.Signals) -> None:
    at_the_first_shard = json.dumps([{"at": "os:fsync", "call": 1, "do": "STOP"}])
    program = ["-m", "harness.failpoints", at_the_first_shard, "andrea_cli.main"]
    command = [sys.executable, *program, *map(str, wish.arguments)]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as child:
        until("it stands still", lambda: stands_still(child.pid))
        assert os.listdir(wish.run.parent) != []
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        _, err = child.communicate()
    assert child.returncode in (130, 143) and "Traceback" not in err
    assert not wish.run.parent.exists()


def test_the_demo(andrea: Andrea, tmp_path: Path) -> None:
    done = andrea("init", tmp_path / "demo", "--demo")
    assert done.code == 0
    assert f"train it: andrea-train --run {tmp_path}/demo" in done.out
    run = RunDir(tmp_path / "demo")
    text = run.policy_toml.read_text()
    rules = policy.load(run.policy_toml)
    assert all(Path(str(arm.path)).is_dir() for arm in rules.arms.values())
    fingerprints = {arm: shard.fingerprint for arm, shard in opened(run, text).items()}
    again = andrea("prepare", run.root, "--json")
    assert {arm: about["fingerprint"] for arm, about in again.json["arms"].items()} == fingerprints
    settings = config.load(run.run_toml)
    # Nothing is pinned in the demo's own configuration: another process, which may load torch, was asked.
    assert re.fullmatch(r"cpu|cuda:\d", settings.run.device)
    assert settings.run.precision in ("fp32", "bf16", "fp16")
    assert settings.run.threads == len(os.sched_getaffinity(0))
    assert settings.shape.n_params == 884_992
    assert sum(about["bytes"] for about in again.json["arms"].values()) < 4_000_000
