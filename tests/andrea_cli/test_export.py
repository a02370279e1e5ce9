from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch

from andrea_corpus.tokenizer import load
from andrea_rundir.names import RunDir
from andrea_train import exported, model
from harness.commands import Andrea, snapshot
from harness.models import SHAPE, model_run, write_checkpoint


def flat(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.fromfile(path, "<f4", SHAPE.n_params, offset=8))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return model_run(tmp_path / "run")


@pytest.mark.parametrize("learned", [True, False])
def test_an_export_reproduces_our_scores(andrea: Andrea, tmp_path: Path, learned: bool) -> None:
    run = model_run(tmp_path / "run", learned=learned)
    done = andrea("export", run.checkpoint(70), tmp_path / "out", "--json")
    assert done.code == 0 and sorted(done.json["files"]) == [
        *("config.json", "model.py", "model.safetensors", "tokenizer.json")
    ]
    net = exported.load(tmp_path / "out")
    windows = torch.from_numpy(np.random.default_rng(1).integers(0, SHAPE.vocab_size, (5, SHAPE.context)))
    ours = model.logits(model.weights(flat(run.checkpoint(70)), SHAPE), windows, SHAPE.n_heads)
    with torch.no_grad():
        rounding = 5e-6 * float(ours.abs().max())
        assert float((net(windows) - ours).abs().max()) < rounding
        assert float((net(windows[:, :7]) - ours[:, :7]).abs().max()) < rounding
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["name"], config["step"], config["norm_eps"]) == ("shown", 70, model.NORM_EPS)
    ids = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).encode("the fox").ids
    ours_too = load(run.data / "tokenizer.json")
    assert ids == [ours_too.bos, *ours_too.encode(b"the fox").tolist()]
    assert ids[0] == config["bos_token_id"]


STRANGER = """\
import sys
import torch
from tokenizers import Tokenizer
import model

net = model.load(".")
tokenizer = Tokenizer.from_file("tokenizer.json")
ids = tokenizer.encode("the quick").ids
torch.manual_seed(0)
text = tokenizer.decode(net.generate(ids, 20))
likeliest = net.generate(ids, 30, temperature=0)
assert not any("andrea" in name for name in sys.modules)
print(repr(text), len(likeliest) - len(ids))
"""


def test_a_stranger_s_script_writes_text(andrea: Andrea, run: RunDir, tmp_path: Path) -> None:
    assert andrea("export", run.checkpoint(70), tmp_path / "out").code == 0
    assert len(STRANGER.splitlines()) <= 15
    done = subprocess.run([sys.executable, "-c", STRANGER], cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("'the quick") and done.stdout.endswith(" 30\n")


def test_an_import_gives_the_same_weights_and_a_fresh_optimizer(andrea: Andrea, run: RunDir, tmp_path: Path) -> None:
    assert andrea("export", run.checkpoint(70), tmp_path / "out").code == 0
    dry = andrea("import", tmp_path / "out", tmp_path / "new.bin", "--dry-run")
    assert dry.code == 0 and "would be written" in dry.out and not (tmp_path / "new.bin").exists()
    done = andrea("import", tmp_path / "out", tmp_path / "new.bin", "--json")
    assert done.code == 0 and done.json["step"] == 0
    old, new = run.checkpoint(70).read_bytes(), (tmp_path / "new.bin").read_bytes()
    third = 4 * SHAPE.n_params
    assert len(old) == len(new)
    assert new == np.array([0, SHAPE.n_params], "<i4").tobytes() + old[8 : 8 + third] + bytes(2 * third)
    assert andrea("inspect", tmp_path / "new.bin").code == 0


def test_a_kept_or_archived_file_belongs_to_its_run_too(andrea: Andrea, run: RunDir, tmp_path: Path) -> None:
    for folder in (run.kept, run.archive / "step_000070"):
        folder.mkdir(parents=True)
        os.link(run.checkpoint(70), folder / "step_000070.bin")
        assert andrea("export", folder / "step_000070.bin", tmp_path / f"out-{folder.name}").code == 0


def test_what_cannot_be_exported_is_refused_and_nothing_is_left(andrea: Andrea, run: RunDir, tmp_path: Path) -> None:
    stray = tmp_path / "step_000070.bin"
    write_checkpoint(stray, SHAPE, step=70)
    broken = run.checkpoint(80)
    broken.write_bytes(run.checkpoint(70).read_bytes())  # the header says 70
    short = run.checkpoint(90)
    short.write_bytes(run.checkpoint(70).read_bytes()[:-4])
    other = run.checkpoint(100)
    other.write_bytes(np.array([100, 1, 0, 0, 0], "<i4").tobytes())
    spoilt = run.checkpoint(70)
    data = bytearray(spoilt.read_bytes())
    data[1000] ^= 1
    spoilt.write_bytes(data)
    before = snapshot(tmp_path)
    for file, said in (
        (stray, "lies in no run"),
        (broken, "the header says step 70"),
        (short, "not a usable checkpoint"),
        (other, "not of this model"),
        (spoilt, "SHA256SUMS"),
        (tmp_path / "none.bin", "No such file"),
    ):
        done = andrea("export", file, tmp_path / "deep" / "out")
        assert done.code == 1 and said in done.err and str(file) in done.err
    assert "the export is not empty" in andrea("export", spoilt, run.root).err
    assert snapshot(tmp_path) == before


def test_what_cannot_be_imported_is_refused_and_nothing_is_left(andrea: Andrea, run: RunDir, tmp_path: Path) -> None:
    out, target = tmp_path / "out", tmp_path / "new.bin"
    assert andrea("export", run.checkpoint(70), out).code == 0
    whole = snapshot(out)

    def refused(said: str, file: Path = target) -> None:
        done = andrea("import", out, file)
        assert done.code == 1 and said in done.err
        assert not target.exists()
        for name, (_, data) in whole.items():
            (out / name).write_bytes(data)

    (out / "config.json").write_text("{}")
    refused("no 'vocab_size'")
    (out / "config.json").write_text(whole["config.json"][1].decode().replace('"n_heads": 4', '"n_heads": 5'))
    refused("do not divide")
    (out / "config.json").write_text(whole["config.json"][1].decode().replace('"context": 24', '"context": 25'))
    refused("position_embedding")
    (out / "config.json").write_text(whole["config.json"][1].decode().replace('"n_layers": 3', '"n_layers": 4'))
    refused("layers.3.fc1: missing")
    (out / "model.safetensors").write_bytes(whole["model.safetensors"][1][:-8])
    refused("cannot be read")
    (out / "model.safetensors").write_bytes(whole["model.safetensors"][1][:-4] + b"\0\0\xc0\x7f")  # NaN
    refused("finite")
    refused("already there", run.checkpoint(70))
    refused("no such folder", tmp_path / "none" / "x.bin")


LIGHT = 'import sys; sys.modules["torch"] = None; from andrea_cli.main import main; sys.exit(main())'


def test_neither_verb_needs_torch(run: RunDir, tmp_path: Path) -> None:
    for arguments in (
        ["export", run.checkpoint(70), tmp_path / "out"],
        ["import", tmp_path / "out", tmp_path / "new.bin"],
    ):
        done = subprocess.run([sys.executable, "-c", LIGHT, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
