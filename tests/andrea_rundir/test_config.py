from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_rundir import config
from andrea_rundir.faults import BadConfig
from andrea_rundir.layout import PRESETS, Shape


def refused(text: str) -> BadConfig:
    with pytest.raises(BadConfig) as caught:
        config.parse(text, "run.toml")
    assert caught.value.exit_code == 78
    return caught.value


def test_every_key_has_a_default() -> None:
    default = config.parse("", "run.toml")
    assert default.shape == PRESETS["andrea-120m"]
    assert default.optimizer.lr == 3e-4 and default.optimizer.betas == (0.9, 0.999)
    assert default.checkpoint.keep_every_steps == 10_000
    assert default.optimizer.micro_batch_size == 8
    assert default.run.plan_wait == 30.0 and default.tokenizer.kind == "bytes"


def test_dump_gives_every_key_with_a_comment() -> None:
    text = config.dump(config.parse("", "run.toml"))
    tables = tomllib.loads(text)
    assert list(tables) == [
        "run",
        "model",
        "tokenizer",
        "optimizer",
        "checkpoint",
        "samples",
        "probe",
        "guard",
    ]
    for line in text.splitlines():
        assert not line or line.startswith("[") or "# " in line
    assert 'preset = "andrea-120m"' in text and "vocab_size" not in tables["model"]


def test_explicit_shape() -> None:
    text = "[model]\nvocab_size = 300\nd_model = 64\nn_heads = 4\nn_layers = 2\ncontext = 32\n"
    parsed = config.parse(text, "x")
    assert parsed.shape == Shape(300, 64, 4, 2, 32)
    assert parsed.model.preset is None
    assert config.parse(config.dump(parsed), "y") == parsed


@given(
    prompts=st.one_of(st.just([]), st.lists(st.text(min_size=1, max_size=20), min_size=6, max_size=6)),
    lr=st.floats(min_value=1e-30, max_value=1e30),
    beta=st.floats(min_value=0, max_value=0.999999),
    every=st.integers(1, 10_000),
    seed=st.integers(0, 2**63 - 1),
    path=st.text(max_size=10),
)
def test_dump_then_parse_is_the_same(
    prompts: list[str], lr: float, beta: float, every: int, seed: int, path: str
) -> None:
    made = config.build(
        {
            "run": {"seed": seed, "name": "a.b-c_d"},
            "tokenizer": {"kind": "bpe", "path": path},
            "optimizer": {"lr": lr, "min_lr": lr / 2, "betas": [beta, beta]},
            "checkpoint": {"every": every},
            "probe": {"every": every * 3},
            "samples": {"prompts": prompts},
        },
        "x",
    )
    assert config.parse(config.dump(made), "dumped") == made


def test_every_character_survives() -> None:
    path = "".join(map(chr, range(1, 0x180)))
    made = config.build({"tokenizer": {"kind": "bpe", "path": path}}, "x")
    assert config.parse(config.dump(made), "dumped").tokenizer.path == path


@pytest.mark.parametrize(("every", "steps"), [(100, 20), (50, 10), (7, 7), (20, 20), (23, 1), (1, 1), (46, 2)])
def test_a_round_is_the_largest_divisor_of_the_cadence_up_to_20(every: int, steps: int) -> None:
    made = config.parse(f"[checkpoint]\nevery = {every}\n[probe]\nevery = {every}\n", "x")
    assert made.round_steps == steps


@pytest.mark.parametrize(
    ("text", "key", "found", "expected"),
    [
        ("[model]\npreset = 'andrea-9b'", "model.preset", '"andrea-9b"', "andrea-tiny"),
        (
            "[model]\npreset = 'andrea-tiny'\nn_heads = 4",
            "model.preset",
            "andrea-tiny",
            "preset, or vocab_size",
        ),
        ("[model]\nd_model = 64", "model", "1 of 5 numbers", "all of vocab_size"),
        (
            "[model]\nvocab_size=257\nd_model=64\nn_heads=7\nn_layers=1\ncontext=8",
            "model.n_heads",
            "7",
            "a divisor of d_model = 64",
        ),
        (
            "[model]\nvocab_size=257\nd_model=40\nn_heads=4\nn_layers=1\ncontext=8",
            "model.d_model",
            "40",
            "a multiple of 16",
        ),
        (
            "[model]\nvocab_size=257\nd_model=16384\nn_heads=4\nn_layers=1\ncontext=8",
            "model",
            "n_params = 3,229,777,920",
            "at most 2,147,483,647",
        ),
        (
            "[model]\nvocab_size=256\nd_model=64\nn_heads=4\nn_layers=1\ncontext=8",
            "model.vocab_size",
            "256",
            "at least 257",
        ),
        ("[optimizer]\nlr = 1e-5", "optimizer.min_lr", "3e-05", "at most lr = 1e-05"),
        ("[optimizer]\nlr = nan", "optimizer.lr", "nan", "finite"),
        ("[optimizer]\nlr = inf", "optimizer.lr", "inf", "finite"),
        ("[optimizer]\nlr = 0", "optimizer.lr", "0", "greater than 0"),
        ("[optimizer]\nlr = '3e-4'", "optimizer.lr", '"3e-4"', "a valid number"),
        ("[optimizer]\nmax_steps = true", "optimizer.max_steps", "true", "a valid integer"),
        ("[optimizer]\nmax_steps = 3000000000", "optimizer.max_steps", "3000000000", "2147483647"),
        ("[optimizer]\nmax_steps = 10", "optimizer.warmup_steps", "2000", "at most max_steps = 10"),
        ("[optimizer]\nmicro_batch = 3", "optimizer.micro_batch", "3", "a divisor of batch_size = 8"),
        ("[optimizer]\nbetas = [0.9, 1.0]", "optimizer.betas.1", "1.0", "less than 1"),
        ("[optimizer]\nbetas = [0.9]", "optimizer.betas.1", "", ""),
        ("[checkpoint]\nkeep_last = 1", "checkpoint.keep_last", "1", "greater than or equal to 2"),
        ("[checkpoint]\nkeep_every = 150", "checkpoint.keep_every", "150", "a multiple of every = 100"),
        ("[probe]\nevery = 150", "probe.every", "150", "a multiple of 100"),
        ("[probe]\nheld_out = 1.0", "probe.held_out", "1.0", "less than 1"),
        ("[samples]\nprompts = ['a', 'b']", "samples.prompts", "2 prompts", "none or six"),
        ("[samples]\nprompts = ['a', 'b', '', 'd', 'e', 'f']", "samples.prompts", "", "six texts"),
        ("[run]\nname = 'a b'", "run.name", '"a b"', "pattern"),
        ("[run]\nname = ''", "run.name", '""', "pattern"),
        ('[run]\nname = "a\\n"', "run.name", "a", "pattern"),
        ("[run]\ndevice = 'gpu'", "run.device", '"gpu"', "cuda"),
        ("[run]\nprecision = 'fp8'", "run.precision", '"fp8"', "fp16"),
        ("[run]\ndevice = 'cpu'\nprecision = 'fp16'", "run.precision", '"fp16"', "fp32 or bf16"),
        ("[run]\nid = 'x'", "run.id", '"x"', "pattern"),
        ("[guard]\nregressed = 'stop'", "guard.regressed", '"stop"', '"warn" or "halt"'),
        ("[tokenizer]\npath = 'x.json'", "tokenizer.path", '"x.json"', "bpe"),
        ("run = 3", "run", "3", ""),
    ],
)
def test_bad_values_name_file_key_found_expected(text: str, key: str, found: str, expected: str) -> None:
    fault = refused(text)
    assert fault.where == f"run.toml: {key}"
    assert found in fault.found
    assert expected in fault.expected
    assert fault.what


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ("[optimizer]\nlearning_rate = 1", "optimizer.learning_rate", "one of lr, min_lr"),
        ("[optimizer]\nmax_step = 1", "optimizer.max_step", "did you mean max_steps?"),
        ("[run]\nlr = 1", "run.lr", "did you mean [optimizer] lr?"),
        ("lr = 1", "lr", "did you mean [optimizer] lr?"),
        ("[optimiser]\nlr = 1", "optimiser", "did you mean optimizer?"),
        ("[run]\nkeep_lost = 3", "run.keep_lost", "did you mean [checkpoint] keep_last?"),
        ("[probe]\nkeep_every = 3", "probe.keep_every", "did you mean [checkpoint] keep_every?"),
        ("[guard]\noptimizer = 1", "guard.optimizer", "did you mean [optimizer]?"),
    ],
)
def test_unknown_keys_name_the_nearest_right_one(text: str, where: str, expected: str) -> None:
    fault = refused(text)
    assert fault.where == f"run.toml: {where}"
    assert fault.expected.startswith(expected)


def test_more_than_one_error_is_counted() -> None:
    assert refused("[optimizer]\nlr = 0\neps = 0\n").todo == "1 more to mend in the same file"


@pytest.mark.parametrize("text", ["[run", "[run]\nseed = 1\nseed = 2", "[run]\n[run]", "seed = ", "x = " + "[" * 9999])
def test_not_toml(text: str) -> None:
    assert refused(text).what == "the file is not valid TOML"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as caught:
        config.load(tmp_path / "none.toml")
    assert caught.value.found == "No such file or directory" and str(tmp_path) in caught.value.where
    with pytest.raises(BadConfig):
        config.load(tmp_path)
    bad = tmp_path / "latin.toml"
    bad.write_bytes(b"[run]\nname = '\xe9'\n")
    with pytest.raises(BadConfig) as caught:
        config.load(bad)
    assert caught.value.where.endswith("byte 14") and caught.value.found == "byte 0xe9"


def test_differences_are_named_by_section_and_key() -> None:
    one = config.parse("", "one").model_dump(mode="json")
    other = config.parse("[optimizer]\nlr = 1e-3\n[guard]\nspike = 'skip'\n", "other").model_dump(mode="json")
    assert config.differences(one, other) == {"optimizer.lr": (3e-4, 1e-3), "guard.spike": ("warn", "skip")}
    assert config.differences(one, one) == {}
    del other["probe"], other["guard"]["spike"]
    assert config.differences(other, one)["probe.every"] == (None, 1000)
    assert config.differences(other, one)["guard.spike"] == (None, "warn")


def test_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        config.parse("", "x").run.seed = 3  # type: ignore[misc]
