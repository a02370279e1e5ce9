"""Where everything in a run directory lies: the one place that spells file names.

Standard library only, so that the command line starts fast.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from andrea_rundir.faults import Refused, Usage

_CHECKPOINT = re.compile(r"step_(\d{6,})\.bin")


def checkpoint_name(step: int) -> str:
    """`step_NNNNNN.bin`: at least six digits, more where the step needs them."""
    return f"step_{step:06d}.bin"


def checkpoint_step(name: str) -> int | None:
    """The step in a checkpoint's name; None for any other name, odd spellings (`step_0000100.bin`) included."""
    match = _CHECKPOINT.fullmatch(name)
    if match is None or not name.isascii():
        return None
    step = int(match[1])
    return step if checkpoint_name(step) == name else None


@dataclass(frozen=True)
class RunDir:
    """Paths inside one run directory. Touches no file but in `checkpoints`."""

    root: Path

    def missing(self) -> Refused:
        """What to raise where there is no run."""
        return Refused(
            "no run here",
            where=str(self.root),
            expected="a directory with a run.toml",
            todo="`andrea list` shows the runs, `andrea init` makes one",
        )

    @property
    def run_toml(self) -> Path:
        """What is trained."""
        return self.root / "run.toml"

    @property
    def policy_toml(self) -> Path:
        """What it is fed."""
        return self.root / "policy.toml"

    @property
    def policy_next(self) -> Path:
        """A requested pivot."""
        return self.root / "policy.next.toml"

    @property
    def policy_pending(self) -> Path:
        """The claimed request."""
        return self.root / "policy.pending.toml"

    @property
    def lineage(self) -> Path:
        """Where weights and history came from."""
        return self.root / "lineage.json"

    @property
    def train_lock(self) -> Path:
        """Held by flock while the trainer lives; never unlinked."""
        return self.root / "train.lock"

    @property
    def proxy_lock(self) -> Path:
        """Held by flock while the proxy lives; never unlinked."""
        return self.root / "proxy.lock"

    @property
    def train_pid(self) -> Path:
        """One decimal line: an address, not a proof of life."""
        return self.root / "train.pid"

    @property
    def proxy_pid(self) -> Path:
        """One decimal line: an address, not a proof of life."""
        return self.root / "proxy.pid"

    @property
    def sums(self) -> Path:
        """SHA-256 of every checkpoint on disk, as `sha256sum` writes it."""
        return self.root / "SHA256SUMS"

    @property
    def kept(self) -> Path:
        """Hard links that retention never looks at."""
        return self.root / "kept"

    @property
    def events(self) -> Path:
        """Folder of event segments."""
        return self.root / "events"

    @property
    def plan(self) -> Path:
        """What to train on next, a line a round."""
        return self.root / "plan.jsonl"

    @property
    def loss(self) -> Path:
        """One entry a step, for ever."""
        return self.root / ".loss.json"

    @property
    def samples(self) -> Path:
        """Audits of the policy in force."""
        return self.root / ".samples.json"

    @property
    def state(self) -> Path:
        """The curriculum's state: a cache of a fold over history."""
        return self.root / ".state.json"

    @property
    def page(self) -> Path:
        """The way to the run page: its address and its token. For the owner alone."""
        return self.root / "page.json"

    @property
    def archive(self) -> Path:
        """Finished policies, one folder a pivot."""
        return self.root / "archive"

    def archived(self, step: int) -> Path:
        """Folder of the policy that ended with `step`."""
        return self.archive / checkpoint_name(step).removesuffix(".bin")

    @property
    def data(self) -> Path:
        """Token shards, `sources.json`, `tokenizer.json`."""
        return self.root / "data"

    def checkpoint(self, step: int) -> Path:
        """The file that holds the state after `step` optimizer steps."""
        return self.root / checkpoint_name(step)

    def checkpoints(self) -> dict[int, Path]:
        """Everything that has a checkpoint's name, by step, in numeric order; OSError when unreadable."""
        steps = {checkpoint_step(name): name for name in os.listdir(self.root)}  # noqa: PTH208 - one syscall
        return {step: self.root / steps[step] for step in sorted(s for s in steps if s is not None)}


def state_directory() -> Path:
    """Where runs that are named, not given by path, live."""
    for variable in ("STATE_DIRECTORY", "ANDREA_STATE"):
        if value := os.environ.get(variable):
            return Path(value.split(":")[0])
    if os.geteuid() == 0:
        return Path("/var/lib/andrea")
    return Path.home() / ".local" / "state" / "andrea"


def locate(run: str) -> RunDir:
    """The run that RUN on a command line means: a path if it has a slash or exists, else a name."""
    if not run:
        raise Usage("no run is named", expected="a path or a name", todo="for the services: andrea use RUN")
    path = Path(run)
    if "/" in run or path.exists():
        return RunDir(path.absolute())
    return RunDir(state_directory() / run)
