"""What is recorded: a run's life in a minute, by the real commands. `python -m crash.scenario FOLDER TEXTS`.

init; trainer and proxy; both killed; both again; a checkpoint asked for by signal; one at a stop, and kept; another
policy, written by hand and never synced, while there is no proxy; to the end; a fork.
What the operator was told is written down as it happens, in `told`, as lines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from andrea_rundir.entries import read
from andrea_rundir.names import RunDir
from harness import start, start_proxy, texts, until
from harness.waiting import wait_step

LAST, CADENCE, PIVOT = 40, 5, 20
CONFIG = f"""\
[run]
name = "crash"
device = "cpu"
precision = "fp32"
threads = 1
plan_wait = 600.0
[model]
vocab_size = 257
d_model = 16
n_heads = 2
n_layers = 1
context = 16
[optimizer]
lr = 3e-3
warmup_steps = 5
max_steps = {LAST}
batch_size = 4
[checkpoint]
every = {CADENCE}
keep_last = 2
[samples]
tokens = 8
[probe]
every = 10
"""

POLICY = "[arms.prose]\npath = {prose}\n[arms.sums]\npath = {sums}\n"
OTHER = POLICY + "cap = 0.3\n"
RUN, BRANCH, TOLD = "run", "branch", "told"


def main() -> None:
    base, outside = Path(sys.argv[1]), Path(sys.argv[2])
    run = RunDir(base / RUN)
    told = os.open(base / TOLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(text: str) -> None:
        os.write(told, text.encode() + b"\n")

    paths = {name: f'"{path}"' for name, path in texts(outside).items()}
    (outside / "run.toml").write_text(CONFIG)
    (outside / "policy.toml").write_text(POLICY.format(**paths))
    andrea("init", run.root, "--config", outside / "run.toml", "--policy", outside / "policy.toml")
    tell("made")

    with start_proxy(run, hurt=[PLANNED]) as proxy, start(run, hurt=[SAVED]) as trainer:
        assert trainer.wait() == -signal.SIGKILL, trainer.said()
        assert proxy.wait() == -signal.SIGKILL, proxy.said()
    with start_proxy(run) as proxy:
        with start(run, "--until-step", "13", hurt=[at_step(7, "USR1")]) as trainer:
            assert trainer.wait() == 0, trainer.said()
        until("all is recorded", lambda: recorded(run) == 13)
        assert proxy.stop() == 0, proxy.said()
    andrea("keep", run.root, 13)
    tell("kept")
    run.policy_next.write_text(OTHER.format(**paths))
    with start(run) as trainer:
        wait_step(run, PIVOT)  # as far as there is a plan
        with start_proxy(run) as proxy:
            assert trainer.wait() == 0, trainer.said()
            until("all is recorded and archived", lambda: not run.policy_pending.exists() and recorded(run) == LAST)
            assert proxy.stop() == 0, proxy.said()
    andrea("fork", run.root, base / BRANCH, "--step", PIVOT)
    tell("forked")


# Killed while no call of theirs is under way: nobody could say whether that one was still obeyed.
SAVED: dict[str, object] = {"at": "andrea_train.console:Console.saved", "call": 2, "do": "KILL"}
PLANNED: dict[str, object] = {"at": "andrea_rundir.planfile:PlanFile.append", "call": 2, "do": "KILL", "after": True}


def at_step(count: int, what: str) -> dict[str, object]:
    """As the trainer's `count`-th step is recorded."""
    return {"at": "andrea_train.loop:Loop._record", "call": count, "do": what}


def recorded(run: RunDir) -> int:
    return max((entry["step"] for entry in read(run.loss)), default=0)


def andrea(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "andrea_cli.main", *map(str, arguments)], check=True, capture_output=True)


if __name__ == "__main__":
    main()
