from __future__ import annotations

import pytest

from andrea_cli.settings import forked
from andrea_rundir import config
from andrea_rundir.faults import BadConfig, Usage
from andrea_rundir.names import RunDir


@pytest.fixture
def settings(made_up: RunDir) -> config.RunConfig:
    return config.load(made_up.run_toml)


def test_values_are_toml_or_words(settings: config.RunConfig) -> None:
    wishes = ["optimizer.lr=1e-4", "optimizer.min_lr = 1e-5", "guard.regressed=halt", 'run.name="b"']
    new = forked(settings, [*wishes, "optimizer.betas=[0.9, 0.95]", "run.compile=true"], 10)
    assert (new.optimizer.lr, new.optimizer.min_lr, new.optimizer.betas) == (1e-4, 1e-5, (0.9, 0.95))
    assert (new.guard.regressed, new.run.name, new.run.compile) == ("halt", "b", True)
    assert forked(settings, [], 10) == settings


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ("optimizer.lrr=1", "did you mean lr?"),
        ("lr=1", "did you mean [optimizer] lr?"),
        ("optimiser.lr=1", "did you mean optimizer?"),
        ("optimizer.lr=fast", "optimizer.lr"),
        ("optimizer.max_steps=10", "past the checkpoint's step"),
        ("model.d_model=64", "32: the weights have this shape"),
        ("model.n_heads=4", "the weights have this shape"),
        ("tokenizer.kind=bpe", "the weights were trained with this tokenizer"),
        ("probe.held_out=0.2", "it is cut out of the shards"),
        ("run.id=00000000000000000000000000000000", "an id of its own"),
        ("checkpoint.every=20", "rounds of 20 steps"),
    ],
)
def test_what_a_checkpoint_cannot_be_used_with_is_refused(settings: config.RunConfig, wish: str, words: str) -> None:
    with pytest.raises(BadConfig) as caught:
        forked(settings, [wish], 10)
    assert words in str(caught.value) and "--set" in caught.value.where


def test_a_cadence_with_the_same_rounds_will_do(settings: config.RunConfig) -> None:
    wishes = ["checkpoint.every=50", "checkpoint.keep_every=100", "probe.every=50"]
    assert forked(settings, wishes, 10).checkpoint.every == 50


@pytest.mark.parametrize("wish", ["optimizer.lr", "=1", "optimizer.lr=", "a.b.c=1"])
def test_what_is_no_wish(settings: config.RunConfig, wish: str) -> None:
    with pytest.raises(Usage):
        forked(settings, [wish], 10)


def test_another_machine_is_pinned(settings: config.RunConfig) -> None:
    assert forked(settings, ["run.threads=0"], 10).run.threads > 0
