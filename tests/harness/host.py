"""A booted machine with the project installed on it, and runs on its disk: what an operator has in front of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from andrea_rundir.names import RunDir
from andrea_rundir.planfile import read_back
from harness.machine import LENT, STATE, VENV, Machine
from harness.runs import SMALL
from harness.twin import sidecar_diff, twin_diff
from harness.waiting import last_step, until

TRAIN, PROXY = "andrea-train", "andrea-proxy"
READER, OUTSIDER = "reader", "outsider"
"""Somebody in the group of the runs, and somebody who is not."""
CADENCE: int = SMALL["checkpoint"]["every"]
PATIENT = {"plan_wait": 600.0}  # no round is to fall back
_MAKE = """
import json, pathlib, sys
from harness import make_run
make_run(pathlib.Path(sys.argv[1]), changes=json.loads(sys.argv[2]))
"""


class Host:
    """Installs at once. Runs are made as the user of the services."""

    def __init__(self, machine: Machine, wheel: Path) -> None:
        self.machine = machine
        self.run, self.systemctl, self.show = machine.run, machine.systemctl, machine.show
        self.installed = self._install(wheel)
        self._made = 0
        self._templates: dict[str, Path] = {}

    def _install(self, wheel: Path) -> str:
        """As docs/operations.md says, but for torch and the like, which the test's own environment lends."""
        machine = self.machine
        machine.run(machine.python, "-m", "venv", "--without-pip", VENV)
        machine.lend(VENV)
        shutil.copy(wheel, machine.root / "srv" / wheel.name)
        pip = [VENV / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        machine.run(*pip, "--no-deps", "--no-index", Path("/srv") / wheel.name)
        return machine.run(VENV / "bin/andrea", "units", "install").stdout

    def tidy(self) -> None:
        """Stop everything, forget failures, changed units and alerts."""
        self.systemctl("stop", "andrea.target", "andrea-train*", "andrea-proxy*", check=False)
        self.systemctl("disable", "--quiet", "andrea.target", TRAIN, check=False)
        for drop_in in (self.machine.root / "etc/systemd/system").glob("andrea*.d"):
            shutil.rmtree(drop_in)
        (self.machine.root / "etc/andrea/alert").unlink(missing_ok=True)
        self.systemctl("daemon-reload")
        self.systemctl("reset-failed")

    def andrea(self, *arguments: object, user: str = "", check: bool = True) -> str:
        return self.run("andrea", *arguments, user=user, check=check).stdout

    def status(self, run: RunDir, **how: Any) -> dict[str, Any]:
        """`andrea status --json` of a run."""
        found: dict[str, Any] = json.loads(self.andrea("status", STATE / run.root.name, "--json", **how))
        return found

    def make(self, *, use: bool = True, max_steps: int = 100_000, **changes: dict[str, Any]) -> RunDir:
        """A run that goes on for ever, unless told otherwise; `use`: the services shall work on it."""
        optimizer = {"max_steps": max_steps, **changes.get("optimizer", {})}
        wanted = json.dumps({**changes, "optimizer": optimizer})
        if (template := self._templates.get(wanted)) is None:
            template = STATE / f".template{len(self._templates)}"
            python = ["env", f"PYTHONPATH={LENT}/tests", VENV / "bin/python", "-c", _MAKE]
            self.run(*python, template, wanted, user="andrea")
            self._templates[wanted] = template
        self._made += 1
        name = f"run{self._made}"
        self.run("cp", "-a", template, STATE / name)
        if use:
            self.andrea("use", name)
        return RunDir(self.machine.state / name)

    def change(self, unit: str, *lines: str, section: str = "Service") -> None:
        """What `systemctl edit` does."""
        text = "\n".join((f"[{section}]", *lines, ""))
        self.machine.write(f"/etc/systemd/system/{unit}.d/{section.lower()}.conf", text)
        self.systemctl("daemon-reload")

    def hurt(self, *points: dict[str, object], also: tuple[str, ...] = ()) -> None:
        """Start the trainer with failpoints (see harness.failpoints)."""
        spec = json.dumps(points).replace('"', '\\"')
        self.change(
            f"{TRAIN}.service",
            f"Environment=PYTHONPATH={LENT}/tests",
            "ExecStart=",
            f"ExecStart=/usr/bin/env --block-signal=USR1 --block-signal=TERM {VENV}/bin/python"
            f' -m harness.failpoints "{spec}" andrea_train.main --run ${{ANDREA_RUN}}',
            *also,
        )

    def dawdle(self) -> None:
        """Let the trainer's Python take a second before it runs a line of ours."""
        self.machine.write("/srv/late/sitecustomize.py", "import time\n\ntime.sleep(1)\n")
        self.change(f"{TRAIN}.service", "Environment=PYTHONPATH=/srv/late")

    def program(self, unit: str) -> str:
        """The name of what the unit's main process runs; empty when there is none."""
        return self.run("cat", f"/proc/{self.machine.main_pid(unit)}/comm", check=False).stdout.strip()

    def start(self, unit: str = TRAIN) -> None:
        self.systemctl("start", unit)

    def stop(self, unit: str = TRAIN) -> None:
        self.systemctl("stop", unit)

    def until(self, what: str, happened: Callable[[], bool], timeout: float = 150) -> None:
        """As `harness.until`; asking the machine costs more than looking at a file, so it is asked less often."""
        until(what, happened, timeout, pause=0.1)

    def until_state(self, unit: str, wanted: Callable[[tuple[str, str]], bool]) -> tuple[str, str]:
        """Wait for a state and result of a unit."""
        self.until(f"{unit}: {self.machine.state_of(unit)}", lambda: wanted(self.machine.state_of(unit)))
        return self.machine.state_of(unit)

    def differences(self, hurt: RunDir, whole: RunDir) -> list[str]:
        """Both go on to the same step, as named runs, the one from where it was left and the other in one go: every way
        in which files of trainer and proxy differ then."""
        self.systemctl("stop", TRAIN, f"{PROXY}.socket", PROXY)
        step = (self.last_step(hurt) // CADENCE + 2) * CADENCE
        for run in (hurt, whole):
            self.train_to(run, step)
        return [*twin_diff(hurt, whole, step, cadence=CADENCE), *sidecar_diff(hurt, whole)]

    def train_to(self, run: RunDir, step: int) -> None:
        """Train up to `step` by the template units, until both services have written all there is to write."""
        name = run.root.name
        self.machine.write(f"/etc/andrea/{name}.conf", f"ANDREA_TRAIN_OPTIONS=--until-step {step}\n")
        self.start(f"{TRAIN}@{name}")
        self.until_state(f"{TRAIN}@{name}", lambda state: state == ("inactive", "success"))
        planned = step + 2 * CADENCE  # the plan is two rounds ahead, and here a round is a cadence
        self.until("all is planned", lambda: next(read_back(run.plan)).plan.last == planned)
        self.systemctl("stop", f"{PROXY}@{name}.socket", f"{PROXY}@{name}")

    def newest(self, run: RunDir) -> int:
        return max(run.checkpoints(), default=-1)

    def last_step(self, run: RunDir) -> int:
        return last_step(run)
