"""The training loop: one step after another, and at each step edge whatever the outside wished for meanwhile.

Promises that a step is a function of the files alone, that a wish to stop is heard in everything that can last, and
that saving comes before looking: an audit or a probe broken off is owed, not lost. Writes `events/` (what happened)
and, through the saver, checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from andrea_corpus.dealer import Exhausted
from andrea_rundir.config import RunConfig
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED
from andrea_rundir.plan import RoundPlan
from andrea_service.notify import Extender
from andrea_train import device as devices
from andrea_train import model
from andrea_train.feed import Batch, Feed
from andrea_train.guard import SPIKE_SIGMA, Guard
from andrea_train.larder import Diet
from andrea_train.looks import Looks, Owed
from andrea_train.optimizer import AdamW, Update
from andrea_train.outside import Outside
from andrea_train.saver import Keep, Saved, Saver
from andrea_train.schedule import learning_rate
from andrea_train.state import Staging, State

PAUSE_SECONDS = 0.5
COMPILE_SECONDS = 1800


class Stopped(Exception):
    """The outside wished for a stop while something was waited for."""


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
    guard: Guard
    byte_lengths: NDArray[np.int32]
    outside: Outside
    looks: Looks
    feed: Feed = field(init=False)
    published: int = -1

    def __post_init__(self) -> None:
        self._leaves = model.weights(self.state.w, self.state.shape, trainable=True)
        parts = model.weights(self.optimizer.gradient, self.state.shape)
        self._gradients = parts.tensors()
        self._leaving = ExitStack()
        self._told, self._grown, self._regressed, self._paused = False, 0, False, False

    def run(self, last: int, reason: str, owed: Owed) -> int:
        """Train until `last` steps are done, a stop is wished for or the data is exhausted; the exit code.

        Raises Halt when the run should not go on.
        """
        ready = False
        while not self.outside.stopping() and self.state.step < last:
            if not ready and self.config.run.compile:  # nothing moves on meanwhile, and it takes minutes
                self.outside.notifier.extend(COMPILE_SECONDS)
                self.outside.notifier.status("compiles the model before the first step")
            try:
                self._step()
            except Exhausted:
                reason = "data exhausted"
                if self.published != self.state.step:
                    self._checkpoint("final")
                break
            except Stopped:
                break
            if not ready:
                ready = True
                self.outside.notifier.ready(self.outside.console.line)
                self.looks.pay(owed, self.staging)
            self._edge(last)
        if not ready:
            self.outside.notifier.ready("nothing left to train")
            self.looks.pay(owed, self.staging)
        return self._finish(reason)

    def announce(self, plan: RoundPlan, why: str) -> None:
        """Record a fallback round, and wait until the record is durable: no step of it may come first."""
        self.outside.events.append("fallback", **plan.to_json(), reason=why)
        if not self.feed.fell_back:  # the round before had a plan: said once, not every round
            text = f"{why}: goes on without one from step {plan.first}"
            self.outside.log.warning(text, extra={"event": "fallback", "step": plan.first})
        while not self.outside.events.sync():
            self._pause("events cannot be written")
        self._paused = False

    def idle(self) -> None:
        """Hear the outside while a plan is waited for, before a step; raises Stopped when a stop is wished for."""
        if self.outside.stopping():
            raise Stopped
        wanted = self.outside.signals.checkpoint_wanted
        if wanted.is_set() and self.published != self.state.step:
            wanted.clear()
            self._save("signal")  # the looks that belong to this step have been taken

    def adopt(self, diet: Diet, kept: Collection[str]) -> None:
        """Go over to another policy, of whose arms `kept` run on from the one before."""
        self.looks.adopt(diet)
        self.guard.pivot(kept)
        step, policy = self.state.step, diet.regime.id
        text = f"step {step + 1} is the first of policy {policy}"
        self.outside.log.info(text, extra={"event": "pivot", "step": step, "policy": policy})

    def first_checkpoint(self) -> None:
        """Publish `step_000000.bin`, measure and audit the untrained model."""
        self._checkpoint("initial")

    # One step.

    def _step(self) -> None:
        began = time.monotonic()
        step = self.state.step + 1
        while self.outside.events.full:
            self._pause("events wait in memory, and the room for them is full")
        self._paused = False
        batch = self.feed.batch(step)
        losses = self._gradient(batch)
        config = self.config.optimizer
        lr = learning_rate(
            step, peak=config.lr, floor=config.min_lr, warmup=config.warmup_steps, total=config.max_steps
        )
        scale = config.loss_scale if self.config.run.precision == "fp16" else 1.0
        if self.config.guard.spike == "skip":
            spike = self.guard.spike(arm_losses(batch, losses.tolist()))
            update = self.optimizer.step(lr, losses, scale=scale, refuse=spike is not None and spike > SPIKE_SIGMA)
        else:
            update = self.optimizer.step(lr, losses, scale=scale)
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
            self.outside.warn(
                self.state.step,
                "spike",
                f"loss {loss:.3f} lies {spike:.1f} deviations above what its arms usually give",
            )
        self.guard.step(step, loss, arms, skipped=skipped or not finite)
        self.outside.events.append(
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
            flags=["skipped"] * skipped + ["fallback"] * self.feed.fell_back,
            cursors=self.feed.cursors,
            credits=self.feed.credits,
        )
        self.outside.console.step(step, self.guard.ema, seconds, batch.windows[:, 1:].size, self.published)
        shape, config = self.state.shape, self.config.optimizer
        scaled = self.config.run.precision == "fp16"
        if sick := self.guard.diverged(step, vocab_size=shape.vocab_size, warmup=config.warmup_steps, scaled=scaled):
            raise self.guard.halt(self.state.step, sick)
        if sick := self.guard.regressed(step):
            if self.config.guard.regressed == "halt":
                raise self.guard.halt(self.state.step, sick)
            if not self._regressed:
                self.outside.warn(step, "regressed", sick)
        self._regressed = sick is not None

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
        """Publish the state, and probe and audit it while the disk is at work; how the save ended is seen later."""
        step = self.state.step
        self._save(reason)
        if reason in ("initial", "cadence") and step % self.config.probe.every == 0:
            self.looks.measure(self.state.w, step)
        self.looks.sample(self.state.w, step)

    def _save(self, reason: str) -> None:
        self._collect()
        self.outside.events.append(
            "snapshot",
            step=self.state.step,
            guard=self.guard.to_json(),
            round=self.feed.round.to_json() if self.feed.round else None,
            cursors=self.feed.cursors,
            credits=self.feed.credits,
        )
        regressed = self.guard.regressed(self.state.step) is not None
        before = self.guard.best_before_regress() if regressed else None
        keep = Keep(best=self.guard.best_probe_step, before=before, pivot=self.feed.diet.regime.start)
        self.saver.submit(self.state, reason, keep)

    def _collect(self) -> Saved | None:
        """Wait for the save under way, if any, and look at how it ended."""
        saved = self.saver.settle(self._attend)
        if saved is not None:
            self._look_at(saved)
            if self.saver.busy:  # it failed and is being tried once more
                saved = self.saver.settle(self._attend)
                if saved is not None:
                    self._look_at(saved)
        return saved

    def _look_at(self, saved: Saved) -> None:
        if saved.digest is not None:
            self.published = saved.job.step
            self.outside.console.saved(saved.job.step, saved.digest)
            self.looks.sign(saved.job.step, saved.digest)
        elif saved.not_finite:
            raise self.guard.halt(
                self.state.step, f"diverged: the state after step {saved.job.step} was not published: {saved.error}"
            )
        else:
            self.outside.warn(self.state.step, "save failed", f"step {saved.job.step}: {saved.error}")
            if saved.job.retried:
                self.looks.sign(saved.job.step, None)
            else:
                self.saver.retry(saved.job)

    # Ends and waits.

    def _finish(self, reason: str) -> int:
        """Publish what is not yet published, and say how it ended."""
        if self.state.step >= self.config.optimizer.max_steps:
            reason = "finished"
        elif self.outside.signals.stop_wanted.is_set():
            reason = self.outside.signals.stop_reason or reason
        self._leave(self.state.step)
        saved = self._collect()
        if self.published != self.state.step:
            self._save("stop")
            saved = self._collect()
        self._leaving.close()
        unsaved = self.published != self.state.step
        if unsaved:
            reason, detail = "unsaved", saved.error if saved is not None else "no save was made"
            lost = f"steps {self.published + 1} to {self.state.step} are lost: {detail}"
            self.outside.warn(self.state.step, "stopped unsaved", lost)
        self.outside.events.append("stop", step=self.published, reason=reason)
        self.outside.events.sync()
        self.outside.console.end(self.published, reason)
        return EXIT_REFUSED if unsaved else EXIT_OK

    def _hear(self) -> None:
        """Polled inside a step: it is finished whatever comes, but the service manager is told."""
        if self.outside.stopping():
            self._leave(self.state.step + 1)

    def _attend(self) -> None:
        """Polled while a save is waited for: not the waiting but the bytes are a sign of life."""
        if (grown := self.saver.pieces_written) != self._grown:
            self._grown = grown
            self.outside.heartbeat.beat()
        if self.outside.signals.stop_wanted.is_set():
            self._leave(self.state.step)

    def _leave(self, step: int) -> None:
        """Tell the service manager, once, that we stop after `step`: from now on bytes that become durable buy time."""
        if not self._told:
            self._told = True
            self.outside.notifier.stopping(f"stopping after step {step}")
            self._leaving.enter_context(Extender(self.outside.notifier, lambda: self.saver.pieces_written))

    def _pause(self, why: str) -> None:
        """Wait a moment for something outside to change; raises Stopped when a stop is wished for."""
        if not self._paused:
            self._paused = True
            self.outside.warn(self.state.step, "paused", f"{why}: {self.outside.events.trouble}")
        self.outside.notifier.status(f"paused at step {self.state.step}: {why}: {self.outside.events.trouble}")
        if self.outside.stopping():
            raise Stopped
        time.sleep(PAUSE_SECONDS)
        self.outside.events.flush()


def arm_losses(batch: Batch, each: list[float]) -> dict[str, tuple[int, float]]:
    """(pulls, mean loss) of each arm of a batch, from the loss of each of its sequences."""
    arms, at = {}, 0
    for arm, pulls in batch.pulls.items():
        arms[arm] = (pulls, sum(each[at : at + pulls]) / pulls)
        at += pulls
    return arms
