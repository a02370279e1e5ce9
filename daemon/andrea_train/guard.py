"""The guard: tells a sick run from a healthy one by its figures, as a pure fold over steps, probes and audits.

Promises that its state is plain numbers that survive a restart through the snapshot event, that folding the same
figures gives the same state, and that it never raises an alarm on a change of the data mix: every loss is judged
against the average of its own arm. Imports `andrea_rundir`; writes no file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from andrea_rundir.entries import smooth
from andrea_rundir.faults import Halt

ARM_KEEP = 0.98
SKIPS_IN_A_ROW = 8
HOPELESS_STEPS = 100
REGRESSED_BY = 1.03
REGRESSED_STEPS = 2000
SPIKE_WINDOW = 128
SPIKE_SIGMA = 6.0


@dataclass
class Guard:
    """What is remembered from step to step. All losses in nats a token, the probe in bits a byte."""

    skips: int = 0
    overflows: int = 0
    ema: float | None = None
    hopeless: int = 0
    arms: dict[str, float] = field(default_factory=dict)
    residuals: list[float] = field(default_factory=list)
    best: float | None = None
    best_step: int = 0
    worse: int = 0
    best_probe: float | None = None
    best_probe_step: int | None = None
    probe_worse_since: int | None = None
    alarms: int = 0
    audited: int | None = None
    """The last step whose audit was counted."""

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, for the snapshot event."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Guard:
        """The guard that `to_json` described."""
        known = {name: value for name, value in data.items() if name in cls.__dataclass_fields__}
        return cls(**known)

    def spike(self, arms: Mapping[str, tuple[int, float]]) -> float | None:
        """How many deviations this step's loss lies above what its arms usually give; None while that is unknown.

        `arms` maps a name to (pulls, mean loss). Looked at before the update, so that it may be skipped.
        """
        residual = self._residual(arms)
        if residual is None or len(self.residuals) < SPIKE_WINDOW:
            return None
        mean = math.fsum(self.residuals) / SPIKE_WINDOW
        deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in self.residuals) / SPIKE_WINDOW)
        return (residual - mean) / deviation if deviation > 0 else None

    def step(self, step: int, loss: float, arms: Mapping[str, tuple[int, float]], *, skipped: bool) -> None:
        """Fold one finished step. A skipped one leaves every average as it was."""
        if skipped:
            self.skips += 1
            self.overflows += math.isfinite(loss)
            return
        self.skips = self.overflows = 0
        residual = self._residual(arms)
        if residual is not None:
            self.residuals = [*self.residuals[-(SPIKE_WINDOW - 1) :], residual]
        self.ema = smooth(self.ema, loss)
        newcomers = arms.keys() - self.arms.keys()
        for name, (_, arm_loss) in sorted(arms.items()):
            known = self.arms.get(name)
            self.arms[name] = arm_loss if known is None else ARM_KEEP * known + (1 - ARM_KEEP) * arm_loss
        level = math.fsum(self.arms[name] for name in sorted(self.arms)) / len(self.arms)
        if newcomers or self.best is None or level < self.best:  # another mix is another yardstick
            self.best, self.best_step, self.worse = level, step, 0
        elif level > self.best * REGRESSED_BY:
            self.worse += 1
        else:
            self.worse = 0

    def probe(self, step: int, value: float) -> None:
        """Fold one held-out measurement; the later one wins a tie."""
        if self.best_probe is None or value <= self.best_probe:
            self.best_probe, self.best_probe_step, self.probe_worse_since = value, step, None
        elif value > self.best_probe * REGRESSED_BY:
            self.probe_worse_since = step if self.probe_worse_since is None else self.probe_worse_since
        else:
            self.probe_worse_since = None

    def audit(self, step: int, *, alarm: bool, counted: bool) -> None:
        """Fold one sample audit; those off the cadence are not counted, nor is one that is taken again."""
        if counted and step != self.audited:
            self.alarms, self.audited = self.alarms + 1 if alarm else 0, step

    def forgive(self) -> None:
        """Count anew: the last process ended by exit 78, and whoever started this one knows of it."""
        self.skips = self.overflows = self.hopeless = self.worse = self.alarms = 0
        self.ema = self.probe_worse_since = None

    def pivot(self, kept: Collection[str]) -> None:
        """Begin another policy: bests and alarms were the old one's, and of its arms only `kept` run on."""
        self.arms = {name: loss for name, loss in self.arms.items() if name in kept}
        self.residuals = []
        self.best = self.best_probe = self.best_probe_step = self.probe_worse_since = None
        self.best_step = self.worse = self.alarms = 0

    def diverged(self, step: int, *, vocab_size: int, warmup: int, scaled: bool = False) -> str | None:
        """The sentence that ends a run, or None. Called once a step, after `step`."""
        if self.skips >= SKIPS_IN_A_ROW:
            if scaled and self.overflows == self.skips:  # the losses were finite, the scaled gradients were not
                return f"overflowed: {self.skips} scaled gradients in a row left the range of fp16: lower loss_scale"
            return f"diverged: {self.skips} updates in a row had a loss or gradient that is not finite"
        chance = math.log(vocab_size)
        above = step > warmup and self.ema is not None and self.ema > chance
        self.hopeless = self.hopeless + 1 if above else 0
        if self.hopeless >= HOPELESS_STEPS:
            return (
                f"diverged: the smoothed loss, {self.ema:.2f}, has been above chance, ln V = {chance:.2f}, "
                f"for {self.hopeless} steps"
            )
        return None

    def regressed(self, step: int) -> str | None:
        """The sentence that says the run has been getting worse, or None."""
        if self.worse >= REGRESSED_STEPS:
            return (
                f"regressed: the loss has been over 3 % above its best, {self.best:.4f} at step {self.best_step}, "
                f"for {self.worse} steps"
            )
        since = self.probe_worse_since
        if since is not None and step - since >= REGRESSED_STEPS:
            return (
                f"regressed: held-out bits a byte have been over 3 % above their best, {self.best_probe:.4f} "
                f"at step {self.best_probe_step}, since step {since}"
            )
        return None

    def halt(self, step: int, why: str) -> Halt:
        """The fault that ends a run after `step`, with the way back."""
        todo = (
            f"the best held-out step so far is {self.best_probe_step}; go back to a checkpoint from before it went "
            "wrong, or change what made it go wrong"
        )
        return Halt(why, step=step, todo=todo)

    def best_before_regress(self) -> int | None:
        """The step whose surroundings must be kept while the run is regressed."""
        steps = [s for s in (self.best_step, self.best_probe_step) if s is not None]
        return min(steps) if steps else None

    def _residual(self, arms: Mapping[str, tuple[int, float]]) -> float | None:
        known = [(pulls, loss - self.arms[name]) for name, (pulls, loss) in sorted(arms.items()) if name in self.arms]
        pulls = sum(p for p, _ in known)
        return math.fsum(p * r for p, r in known) / pulls if pulls else None
