"""Looking at the model while it trains: held-out bits a byte and sampled texts, put into the events.

Promises that looking touches no training stream, and that a look broken off by a wish to stop is not recorded, so the
next start owes it. Writes, through `Outside`, `events/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from andrea_rundir.config import RunConfig
from andrea_train.audit import Audit
from andrea_train.figures import number
from andrea_train.guard import Guard
from andrea_train.larder import Diet
from andrea_train.outside import Outside
from andrea_train.probe import Probe


@dataclass(frozen=True)
class Owed:
    """What the process before left undone for the checkpoint that this one started from."""

    step: int = 0
    digest: str | None = None
    audit: bool = False
    probe: bool = False


class Looks:
    """The audit and the probe of the policy in force. `make` builds both for a policy's shards."""

    def __init__(
        self,
        config: RunConfig,
        guard: Guard,
        outside: Outside,
        make: Callable[[Diet], tuple[Audit, Probe]],
        diet: Diet,
    ) -> None:
        self._config, self._guard, self._outside, self._make = config, guard, outside, make
        self._audit, self._probe = make(diet)
        self._unsigned: tuple[int, Audit, dict[str, Any]] | None = None

    def adopt(self, diet: Diet) -> None:
        """Look at the arms of another policy from now on."""
        self._audit, self._probe = self._make(diet)

    def pay(self, owed: Owed, weights: Tensor) -> None:
        """Look at `weights`, float32 `[n_params]`, as the process before should have."""
        if not (owed.audit or owed.probe) or self._outside.stopping():
            return
        self._outside.notifier.status(f"looks at step {owed.step}, as the process before should have")
        if owed.probe:
            self.measure(weights, owed.step)
        if owed.audit:
            self.sample(weights, owed.step)
            self.sign(owed.step, owed.digest)

    def measure(self, weights: Tensor, step: int) -> None:
        """Held-out bits a byte of `weights`, float32 `[n_params]`, after `step` steps."""
        began = time.monotonic()
        bits = self._probe.measure(weights, self._config.shape, self._outside.stopping)
        if bits is None:
            return
        mean = self._probe.mean(bits) if np.isfinite(list(bits.values())).all() else None
        self._outside.events.append(
            "probe",
            step=step,
            arms={arm: number(value) for arm, value in bits.items()},
            mean=mean,
            seconds=time.monotonic() - began,
        )
        if mean is not None:
            self._guard.probe(step, mean)
            text = f"step {step}: {mean:.3f} bits a byte on held-out text"
            self._outside.console.say(text, event="probe", step=step)

    def sample(self, weights: Tensor, step: int) -> None:
        """Six texts written by `weights` and a judgement of them, kept until `sign`."""
        began, audit = time.monotonic(), self._audit
        found = audit.run(weights, self._config.shape, step, self._outside.stopping)
        if found is not None:
            self._unsigned = (step, audit, {**found, "seconds": time.monotonic() - began})
            self._outside.console.sample(step, found)

    def sign(self, step: int, digest: str | None) -> None:
        """Record the audit of `step` with the digest of its checkpoint, None if that could not be saved.

        Raises Halt after too many alarms in a row.
        """
        if self._unsigned is None or self._unsigned[0] != step:
            return
        (_, audit, found), self._unsigned = self._unsigned, None
        self._outside.events.append("audit", step=step, digest=digest, **found)
        if audit is self._audit:  # else the policy it belongs to has ended since
            self._guard.audit(step, alarm=found["alarm"], counted=step % self._config.checkpoint.every == 0)
        if found["alarm"]:
            text = f"{found['looped']} of {len(found['samples'])} samples run in circles"
            self._outside.warn(step, "samples loop", text)
        limit = self._config.samples.halt_after
        if limit and self._guard.alarms >= limit:
            why = f"collapsed: the samples of {self._guard.alarms} checkpoints in a row run in circles"
            raise self._guard.halt(step, why)
