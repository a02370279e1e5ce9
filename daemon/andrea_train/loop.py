"""The training loop: one step after another, and at each step edge whatever the outside wished for meanwhile.

Promises that a step is a function of the files alone, that a wish to stop is heard in everything that can last, and
that saving comes before looking: an audit or a probe broken off is owed, not lost. Writes `events/` (what happened)
and, through the saver, checkpoints.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from andrea_corpus.dealer import Exhausted
from andrea_rundir.config import RunConfig
from andrea_rundir.events import EventLog
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED, Halt
from andrea_rundir.plan import RoundPlan
from andrea_service.notify import Extender, Heartbeat, Notifier
from andrea_service.signals import Signals
from andrea_train import device as devices
from andrea_train import model
from andrea_train.audit import Audit
from andrea_train.console import Console
from andrea_train.feed import Batch, Feed
from andrea_train.guard import SPIKE_SIGMA, Guard
from andrea_train.optimizer import AdamW, Update
from andrea_train.probe import Probe
from andrea_train.saver import Keep, Saved, Saver
from andrea_train.schedule import learning_rate
from andrea_train.state import Staging, State

PAUSE_SECONDS = 0.5
FULL_COLLECTION_STEPS = 5000


class Stopped(Exception):
    """The outside wished for a stop while something was waited for."""


@dataclass(frozen=True)
class Owed:
    """What the process before left undone for the checkpoint that this one started from."""

    audit: bool = False
    probe: bool = False


@dataclass
class Outside:
    """Everyone the loop tells or listens to."""

    signals: Signals
    notifier: Notifier
    heartbeat: Heartbeat
    console: Console
    log: logging.Logger


@dataclass
class Loop:
    """All the parts of a run that trains."""

    config: RunConfig
    device: torch.device
    state: State
    staging: Staging
    optimizer: AdamW
    losses: Callable[[model.Weights, Tensor, int], Tensor]
    saver: Saver
    events: EventLog
    guard: Guard
    audit: Audit
    probe: Probe
    byte_lengths: NDArray[np.int32]
    outside: Outside
    feed: Feed = field(init=False)
    published: int = -1
    digest: str | None = None
    warned: str | None = None

    def __post_init__(self) -> None:
        self._leaves = model.weights(self.state.w, self.state.shape, trainable=True)
        parts = model.weights(self.optimizer.gradient, self.state.shape)
        self._gradients = parts.tensors()

    def run(self, last: int, reason: str, owed: Owed) -> int:
        """Train until `last` steps are done, a stop is wished for or the data is exhausted; the exit code.

        Raises Halt when the run should not go on.
        """
        ready = False
        while not self.stopping and self.state.step < last:
            try:
                self._step()
            except Exhausted:
                reason = "data exhausted"
                break
            except Stopped:
                break
            if not ready:
                ready = True
                self.outside.notifier.ready(self.outside.console.line)
                self._pay(owed)
            self._edge(last)
        if not ready:
            self.outside.notifier.ready("nothing left to train")
            self._pay(owed)
        return self._finish(reason)

    @property
    def stopping(self) -> bool:
        """Whether a stop is wished for. Looked at in everything that can last."""
        self.outside.heartbeat.beat()
        return self.outside.signals.stop_wanted.is_set()

    def announce(self, plan: RoundPlan, why: str) -> None:
        """Record a fallback round, and wait until the record is durable: no step of it may come first."""
        self.events.append("fallback", **plan.to_json(), reason=why)
        while not self.events.sync():
            self._pause("events cannot be written")

    def first_checkpoint(self) -> None:
        """Publish `step_000000.bin`, measure and audit the untrained model."""
        self._checkpoint("initial")

    # One step.

    def _step(self) -> None:
        began = time.monotonic()
        step = self.state.step + 1
        while self.events.full:
            self._pause("events wait in memory, and the room for them is full")
        batch = self.feed.batch(step)
        losses = self._gradient(batch)
        config = self.config.optimizer
        lr = learning_rate(
            step, peak=config.lr, floor=config.min_lr, warmup=config.warmup_steps, total=config.max_steps
        )
        scale = config.loss_scale if self.config.run.precision == "fp16" else 1.0
        if self.config.guard.spike == "skip":
            spike = self.guard.spike(arm_losses(batch, losses.tolist()))
            update = self.optimizer.step(lr, scale=scale, refuse=spike is not None and spike > SPIKE_SIGMA)
        else:
            update = self.optimizer.step(lr, scale=scale)
        self._record(step, batch, losses, update, lr, time.monotonic() - began)

    def _gradient(self, batch: Batch) -> Tensor:
        """Fill the optimizer's gradient; the loss of each sequence, float32 `[batch]`, on the device."""
        windows = torch.from_numpy(batch.windows)
        if self.device.type == "cuda":
            windows = windows.pin_memory().to(self.device, non_blocking=True)
        config, parts = self.config.optimizer, []
        scale = config.loss_scale if self.config.run.precision == "fp16" else 1.0
        for start in range(0, config.batch_size, config.micro_batch_size):
            with devices.autocast(self.device, self.config.run.precision):
                part = self.losses(
                    self._leaves, windows[start : start + config.micro_batch_size], self.state.shape.n_heads
                )
            total = part.sum() * (scale / config.batch_size)
            gradients = torch.autograd.grad(total, self._leaves.tensors())
            if start == 0:
                torch._foreach_copy_(self._gradients, list(gradients))
            else:
                torch._foreach_add_(self._gradients, list(gradients))
            parts.append(part.detach())
            self._hear()
        return torch.cat(parts)

    def _record(self, step: int, batch: Batch, losses: Tensor, update: Update, lr: float, seconds: float) -> None:
        """Wait for the step's figures, put them into the events, let the guard judge them."""
        figures = torch.cat([losses, update.norm[None], update.skipped[None]]).tolist()
        each, norm, skipped = figures[:-2], figures[-2], figures[-1] > 0
        arms = arm_losses(batch, each)
        loss = sum(each) / len(each)
        finite = bool(np.isfinite([loss, norm]).all())
        if finite and not skipped and (spike := self.guard.spike(arms)) is not None and spike > SPIKE_SIGMA:
            self._warn("spike", f"loss {loss:.3f} lies {spike:.1f} deviations above what its arms usually give")
        self.guard.step(step, loss, arms, skipped=skipped or not finite)
        self.events.append(
            "step",
            step=step,
            loss=loss if np.isfinite(loss) else None,
            arms={
                arm: [pulls, value if np.isfinite(value) else None, self._bytes(batch, arm)]
                for arm, (pulls, value) in arms.items()
            },
            lr=lr,
            grad_norm=norm if np.isfinite(norm) else None,
            tokens=batch.windows[:, 1:].size,
            seconds=seconds,
            policy=self.feed.round.policy if self.feed.round else "",
            flags=["skipped"] if skipped else [],
            cursors=self.feed.cursors,
            credits=self.feed.credits,
        )
        self.outside.console.step(step, self.guard.ema, seconds, batch.windows[:, 1:].size, self.published)
        shape, config = self.state.shape, self.config.optimizer
        if sick := self.guard.diverged(step, vocab_size=shape.vocab_size, warmup=config.warmup_steps):
            raise self._halt(sick)
        if sick := self.guard.regressed(step):
            if self.config.guard.regressed == "halt":
                raise self._halt(sick)
            if self.warned != "regressed":
                self.warned = "regressed"
                self._warn("regressed", sick)

    def _bytes(self, batch: Batch, arm: str) -> int:
        """How many bytes of text the targets of an arm's sequences stand for."""
        names = [name for name, pulls in batch.pulls.items() for _ in range(pulls)]
        rows = [i for i, name in enumerate(names) if name == arm]
        return int(self.byte_lengths[batch.windows[rows, 1:]].sum())

    # The step edge.

    def _edge(self, last: int) -> None:
        step = self.state.step
        if (saved := self.saver.poll()) is not None:
            self._look_at(saved)
        wanted = self.outside.signals.checkpoint_wanted
        if step % self.config.checkpoint.every == 0:
            wanted.clear()
            self._checkpoint("cadence")
        elif step == last:
            self._checkpoint("final")
        elif wanted.is_set():
            wanted.clear()
            self._checkpoint("signal")

    def _checkpoint(self, reason: str) -> None:
        """Publish the state, then probe and audit it while the disk is at work."""
        step = self.state.step
        self._save(reason)
        if reason in ("initial", "cadence") and step % self.config.probe.every == 0:
            self._probe(self.state.w, step)
        self._audit(self.state.w, step)

    def _save(self, reason: str) -> None:
        self._collect()
        self.events.append(
            "snapshot",
            step=self.state.step,
            guard=self.guard.to_json(),
            round=self.feed.round.to_json() if self.feed.round else None,
            cursors=self.feed.cursors,
            credits=self.feed.credits,
        )
        regressed = self.guard.regressed(self.state.step) is not None
        before = self.guard.best_before_regress() if regressed else None
        self.saver.submit(self.state, reason, Keep(best=self.guard.best_probe_step, before=before))

    def _collect(self) -> Saved | None:
        """Wait for the save under way, if any, and look at how it ended."""
        saved = self.saver.settle(self._hear)
        if saved is not None:
            self._look_at(saved)
            if self.saver.busy:  # it failed and is being tried once more
                saved = self.saver.settle(self._hear)
                if saved is not None:
                    self._look_at(saved)
        return saved

    def _look_at(self, saved: Saved) -> None:
        if saved.digest is not None:
            self.published, self.digest = saved.job.step, saved.digest
            self.outside.console.saved(saved.job.step, saved.digest)
        elif saved.not_finite:
            raise self._halt(f"diverged: the state after step {saved.job.step} was not published: {saved.error}")
        else:
            self._warn("save failed", f"step {saved.job.step}: {saved.error}")
            if not saved.job.retried:
                self.saver.retry(saved.job)

    # Looking at the model.

    def _pay(self, owed: Owed) -> None:
        """Do what is owed for the checkpoint this process started from: its weights still lie in staging."""
        if not (owed.audit or owed.probe) or self.stopping:
            return
        step, weights = self.published, self.staging.weights_on(self.device)
        if owed.probe:
            self._probe(weights, step)
        if owed.audit:
            self._audit(weights, step)

    def _probe(self, weights: Tensor, step: int) -> None:
        began = time.monotonic()
        bits = self.probe.measure(weights, self.state.shape, lambda: self.stopping)
        if bits is None:
            return
        finite = all(np.isfinite(list(bits.values())))
        mean = self.probe.mean(bits) if finite else None
        self.events.append(
            "probe",
            step=step,
            arms={arm: value if np.isfinite(value) else None for arm, value in bits.items()},
            mean=mean,
            seconds=time.monotonic() - began,
        )
        if mean is not None:
            self.guard.probe(step, mean)
            self.outside.console.say(f"step {step}: {mean:.3f} bits a byte on held-out text")

    def _audit(self, weights: Tensor, step: int) -> None:
        began = time.monotonic()
        found = self.audit.run(weights, self.state.shape, step, lambda: self.stopping)
        if found is None:
            return
        self._collect()
        digest = self.digest if self.published == step else None
        self.events.append("audit", step=step, digest=digest, seconds=time.monotonic() - began, **found)
        self.guard.audit(alarm=found["alarm"], counted=step % self.config.checkpoint.every == 0)
        self.outside.console.sample(step, found)
        if found["alarm"]:
            self._warn("samples loop", f"{found['looped']} of {len(found['samples'])} samples run in circles")
        limit = self.config.samples.halt_after
        if limit and self.guard.alarms >= limit:
            raise self._halt(f"collapsed: the samples of {self.guard.alarms} checkpoints in a row run in circles")

    # Ends and waits.

    def _finish(self, reason: str) -> int:
        """Publish what is not yet published, and say how it ended."""
        if self.state.step >= self.config.optimizer.max_steps:
            reason = "finished"
        elif self.outside.signals.stop_wanted.is_set():
            reason = self.outside.signals.stop_reason or reason
        with Extender(self.outside.notifier, lambda: self.saver.bytes_durable):
            if self.stopping:
                self.outside.notifier.stopping(f"stopping after step {self.state.step}")
            saved = self._collect()
            if self.published != self.state.step:
                self._save("stop")
                saved = self._collect()
        if self.published != self.state.step:
            detail = saved.error if saved is not None else "no save was made"
            self._warn("stopped unsaved", f"steps {self.published + 1} to {self.state.step} are lost: {detail}")
        self.events.append("stop", step=self.state.step, reason=reason)
        self.events.sync()
        self.outside.console.end(self.state.step, reason)
        return EXIT_OK if self.published == self.state.step else EXIT_REFUSED

    def _hear(self) -> None:
        """Polled inside a step or a save: it is finished whatever comes, but the service manager is told."""
        if self.stopping:
            self.outside.notifier.stopping(f"stopping after step {self.state.step + 1}")

    def _pause(self, why: str) -> None:
        """Wait a moment for something outside to change; raises Stopped when a stop is wished for."""
        if self.warned != why:
            self.warned = why
            self._warn("paused", f"{why}: {self.events.trouble}")
        self.outside.notifier.status(f"paused at step {self.state.step}: {why}: {self.events.trouble}")
        if self.stopping:
            raise Stopped
        time.sleep(PAUSE_SECONDS)
        self.events.flush()

    def _warn(self, what: str, detail: str) -> None:
        self.events.append("warning", step=self.state.step, what=what, detail=detail)
        self.outside.log.warning("%s: %s", what, detail, extra={"event": "warning", "step": self.state.step})

    def _halt(self, why: str) -> Halt:
        best = self.guard.best_probe_step
        return Halt(
            why,
            step=self.state.step,
            todo=f"the best held-out step so far is {best}; go back to a checkpoint before it went wrong, "
            "or change what made it go wrong",
        )


def arm_losses(batch: Batch, each: list[float]) -> dict[str, tuple[int, float]]:
    """(pulls, mean loss) of each arm of a batch, from the loss of each of its sequences."""
    arms, at = {}, 0
    for arm, pulls in batch.pulls.items():
        arms[arm] = (pulls, sum(each[at : at + pulls]) / pulls)
        at += pulls
    return arms
