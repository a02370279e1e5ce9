"""The days of a run's owner, from the first look to the model that is given away.

Whoever looks is a member of the group; whoever acts is root, as sudo makes them, and only after having been refused
without it: what they then type is the line that the refusal shows. What they need next stands on the screen.
"""

from __future__ import annotations

import shlex
import signal

import pytest

from andrea_rundir import entries
from andrea_rundir.names import RunDir
from harness import wait_step
from harness.commands import CONFIG
from harness.host import CADENCE, READER, TRAIN, Host
from harness.runs import texts

LAST = 100_000
POLICY = '[arms.prose]\npath = "/srv/owner/prose.txt"\n[arms.sums]\npath = "/srv/owner/sums.txt"\n'


def look(host: Host, *words: object, check: bool = True) -> str:
    """What a verb shows to a member of the group; it may write into their home."""
    enter = ("env", "-C", f"/home/{READER}", "ANDREA_STATE=/var/lib/andrea")
    done = host.run(*enter, *words, user=READER, check=check)
    return done.stdout + done.stderr


def act(host: Host, *words: object) -> str:
    """Typed by a member of the group, it is refused, and changes nothing; then they type what they were told to."""
    refusal = look(host, *words, check=False)
    assert refusal.startswith("andrea: this is for its owner to do\n"), refusal
    (line,) = (line for line in refusal.splitlines() if line.startswith("  to do:    sudo "))
    command = shlex.split(line.removeprefix("  to do:    sudo "))
    assert command == [str(word) for word in words]
    return host.run("env", "-C", "/srv/owner", *command).stdout


def typed_from(screen: str, before: str) -> list[str]:
    """The commands that the screen offers behind some words."""
    (line,) = (line.partition(before)[2] for line in screen.splitlines() if before in line)
    return [command.strip() for command in line.split(" && ")]


@pytest.mark.timeout(600)
def test_the_days_of_an_owner(readers: Host) -> None:
    host = readers
    run = first_look(host)
    power_cut(host, run)
    pivot(host, run)
    give_away(host, fork(host, run))


def first_look(host: Host) -> RunDir:
    """A run is made, and started by what the screen says."""
    folder = host.machine.root / "srv/owner"
    texts(folder)
    host.machine.write("/srv/owner/run.toml", CONFIG.replace("max_steps = 40", f"max_steps = {LAST}"))
    host.machine.write("/srv/owner/policy.toml", POLICY)
    said = act(host, "andrea", "init", "days", "--config", "/srv/owner/run.toml", "--policy", "/srv/owner/policy.toml")
    choose, start = typed_from(said, "train it: ")
    assert "tried" in act(host, "andrea", "check", "days", "--seconds", 1)
    assert typed_from(act(host, *choose.split()), "start it: ") == [start]
    host.run(*start.split())
    run = RunDir(host.machine.state / "days")
    said = look(host, "andrea", "status", "days")
    assert "is running" in said and f"of {LAST:,}" in said
    (enable,) = typed_from(said, "nobody starts it; `")
    host.run(*enable.rstrip("`").split())
    assert "not enabled" not in look(host, "andrea", "status", "days")
    assert "* days" in look(host, "andrea", "list")
    return run


def power_cut(host: Host, run: RunDir) -> None:
    """It comes back by itself, and says what that has cost."""
    wait_step(run, 25)
    stop_between_checkpoints(host, run)
    host.machine.pull_the_plug()
    host.machine.boot()
    host.until_state(TRAIN, lambda state: state[0] == "active")
    assert "trained again" in look(host, "andrea", "status", "days")
    assert "sound" in look(host, "andrea", "verify", "days").splitlines()
    assert "goes on from step_" in look(host, "journalctl", "-b", "-u", TRAIN)


def stop_between_checkpoints(host: Host, run: RunDir) -> None:
    """At a step that no checkpoint has, so that a cut there costs steps."""
    pid = host.machine.main_pid(TRAIN)
    for _ in range(100):
        host.machine.kill(pid, signal.SIGSTOP)
        if host.last_step(run) % CADENCE in range(2, CADENCE - 1):
            return
        host.machine.kill(pid, signal.SIGCONT)
    raise AssertionError("it never stood between two checkpoints")


def pivot(host: Host, run: RunDir) -> None:
    """The samples are bad: less of the one, from a boundary on; what was recorded stays."""
    assert "score" in look(host, "andrea", "samples", "days")
    before = run.loss.read_bytes().rstrip(b" ]\n")
    asked = ("andrea", "pivot", "days", "--cap", "sums=0.25")
    assert "25.0%" in look(host, *asked, "--dry-run")
    assert "is in force since step" in act(host, *asked)
    assert run.loss.read_bytes().startswith(before)
    (archived,) = (run.root / "archive").iterdir()
    assert (archived / ".state.json").exists()
    assert "sound" in look(host, "andrea", "verify", "days").splitlines()


def fork(host: Host, run: RunDir) -> RunDir:
    """Was it right? A branch from before, at another rate and with an end in sight, beside the run that goes on."""
    lasting = lambda: [step for step in run.checkpoints() if step and step % (10 * CADENCE) == 0]  # noqa: E731
    host.until("a checkpoint that stays for long", lambda: lasting() != [])
    step = lasting()[-1]
    last = step + 60
    kept = act(host, "andrea", "keep", "days", step)
    assert "kept" in kept
    changed = (f"optimizer.max_steps={last}", "optimizer.lr=1e-3")
    said = act(host, "andrea", "fork", "days", "branch", "--step", step, *(w for c in changed for w in ("--set", c)))
    typed_from(said, "train it: ")
    host.start(f"{TRAIN}@branch")
    host.until_state(f"{TRAIN}@branch", lambda state: state == ("inactive", "success"))
    branch = RunDir(host.machine.state / "branch")
    for one in (run, branch):
        host.until("the entries", lambda one=one: recorded(one) >= last)
    assert "one seed" in look(host, "andrea", "compare", "days", "branch", "--plot", "both.png")
    return branch


def recorded(run: RunDir) -> int:
    return max((entry["step"] for entry in entries.read(run.loss)), default=0)


def give_away(host: Host, run: RunDir) -> None:
    """A finished run: its history is drawn, its model shown, and handed over."""
    assert "finished" in look(host, "andrea", "status", run.root.name)
    look(host, "andrea", "plot", run.root.name, "--out", "history.png")
    last = f"/var/lib/andrea/{run.root.name}/{run.checkpoint(max(run.checkpoints())).name}"
    assert "usable" in look(host, "andrea", "inspect", last)
    assert look(host, "andrea", "sample", last, "--prompt", "the river") != ""
    look(host, "andrea", "export", last, "model")
    assert "model.py" in look(host, "ls", "model")
    again = typed_from(act(host, "andrea", "stop", "days"), "start again: ")
    assert again == [f"systemctl start {TRAIN}"]
