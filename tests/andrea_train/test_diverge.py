"""Runs that go wrong: at learning rates that blow up, and at the dangerous kind where everything stays finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from andrea_rundir import inspection
from andrea_rundir.events import read
from andrea_rundir.names import RunDir
from harness import probes, start

Make = Callable[..., RunDir]


def wild(lr: float) -> dict[str, Any]:
    return {
        "optimizer": {"lr": lr, "min_lr": 0.0, "warmup_steps": 30, "max_steps": 2000, "grad_clip": 1e6},
        "checkpoint": {"every": 10, "keep_last": 2},
        "probe": {"every": 10},
    }


@pytest.mark.parametrize("lr", [1e9, 0.1, 1.0])
def test_it_ends_with_78_and_the_way_back_is_there(lr: float, make: Make) -> None:
    run = make(f"lr-{lr}", wild(lr))
    with start(run) as trainer:
        assert trainer.wait() == 78, trainer.said()
    assert "diverged" in trainer.said()
    assert "Traceback" not in trainer.said()
    halt = list(read(run.events))[-1]
    assert halt["event"] == "halt"
    assert "diverged" in halt["reason"]
    for path in run.checkpoints().values():
        assert inspection.inspect(path).problem is None
    measured = {step: figure["mean"] for step, figure in probes(run).items() if figure["mean"] is not None}
    best = min(measured, key=lambda step: (measured[step], -step))
    assert best in run.checkpoints(), "the best-probe checkpoint is kept"
    go_back(run, best)


def go_back(run: RunDir, step: int) -> None:
    """What an operator would do: leave the later files aside, lower the rate, start again."""
    for later, path in run.checkpoints().items():
        if later > step:
            path.rename(path.with_name(path.name + ".aside"))
    lines = []
    for line in run.run_toml.read_text().splitlines():
        key = line.split(" = ")[0]
        lines.append({"lr": "lr = 0.001", "grad_clip": "grad_clip = 1.0"}.get(key, line))
    run.run_toml.write_text("\n".join(lines) + "\n")
    with start(run, "--until-step", str(step + 40)) as trainer:
        assert trainer.wait() == 0, trainer.said()
    assert step + 40 in run.checkpoints()


def test_a_collapsed_model_is_noticed_and_can_halt_the_run(make: Make, tmp_path: Any) -> None:
    """A model that learned nothing but one loop; babble before it learned anything raised no alarm."""
    looped = tmp_path / "looped.txt"
    looped.write_text("region " * 4000)
    changes = {
        "optimizer": {"max_steps": 400, "lr": 1e-2},
        "checkpoint": {"every": 50},
        "probe": {"every": 100},
        "samples": {"tokens": 28, "halt_after": 2},
        "model": {"vocab_size": 257, "d_model": 32, "n_heads": 2, "n_layers": 2, "context": 64},
    }
    run = make("collapse", changes, arms={"looped": looped})
    with start(run) as trainer:
        assert trainer.wait() == 78, trainer.said()
    audits = {e["step"]: e for e in read(run.events) if e["event"] == "audit"}
    assert not audits[0]["alarm"]
    assert audits[max(audits)]["looped"] == 6
    assert "run in circles" in trainer.said()
    with start(run, "--until-step", str(max(audits) + 10)) as trainer:  # counted anew after an exit 78
        assert trainer.wait() == 0, trainer.said()


def test_a_healthy_run_whose_mix_changes_phase_raises_no_alarm(make: Make) -> None:
    rules = '[[phases]]\nname = "warm-up"\nuntil_step = 200\narms = ["sums"]\n'
    rules += '[[phases]]\nname = "prose-only"\nuntil_step = 400\narms = ["prose"]\n'
    changes = {"optimizer": {"max_steps": 600}, "checkpoint": {"every": 100}, "probe": {"every": 100}}
    run = make("phases", changes, rules=rules)
    with start(run) as trainer:
        assert trainer.wait() == 0, trainer.said()
    steps = [e for e in read(run.events) if e["event"] == "step"]
    assert {tuple(e["arms"]) for e in steps if e["step"] <= 200} == {("sums",)}
    assert {tuple(e["arms"]) for e in steps if 200 < e["step"] <= 400} == {("prose",)}
    warnings = [e for e in read(run.events) if e["event"] == "warning"]
    assert [w for w in warnings if w["what"] in ("spike", "regressed")] == []
