"""The training loop: one step after another, and at each step edge whatever the outside wished for meanwhile.

Promises that a step is a function of the files alone, that a wish to stop is heard in everything that can last, and
that saving comes before looking: an audit or a probe broken off is owed, and no step is taken before it is paid (ADR
10); and that a run that was removed or moved meanwhile ends it. Writes `events/` (what happened).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from andrea_corpus.dealer import Exhausted
from andrea_rundir.config import RunConfig
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED
from andrea_rundir.lock import demand_standing
from andrea_rundir.plan import RoundPlan
from andrea_rundir.planfile import Line
from andrea_service.notify import Extender
from andrea_service.signals import take_aborts
from andrea_train.card import Card
from andrea_train.feed import Batch, Feed
from andrea_train.figures import ArmLosses, arm_losses, figures
from andrea_train.guard import SPIKE_SIGMA, Guard
from andrea_train.larder import Diet
from andrea_train.looks import Looks, Owed
from andrea_train.outside import Outside
from andrea_train.publisher import Publisher
from andrea_train.schedule import learning_rate
from andrea_train.state import State
from andrea_train.stepper import Stepper, Taken

PAUSE_SECONDS = 0.5
COMPILE_SECONDS, FIRST_STEP_SECONDS = 1800, 600


class Stopped(Exception):
    """The outside wished for a stop while something was waited for."""


@dataclass
class Loop:
    """All the parts of a run that trains."""

    config: RunConfig
    state: State
    stepper: Stepper
    publisher: Publisher
    guard: Guard
    byte_lengths: NDArray[np.int32]
    outside: Outside
    looks: Looks
    card: Card
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        self._regressed, self._paused = False, False

    def begin(self, owed: Owed) -> None:
        """Publish `step_000000.bin` of a new run; look as the process before should have: all before the first step.

        A start may last as long as it moves.
        """
        take_aborts()
        with Extender(self.outside.notifier, lambda: self.outside.heartbeat.beats):
            if self.publisher.published < 0:
                self.outside.notifier.status("saves, measures and samples the untrained model")
                self._checkpoint("initial")
            else:
                self.looks.pay(owed, self.state.w)

    def run(self, last: int, reason: str) -> int:
        """Train until `last` steps are done, a stop is wished for or the data is exhausted; the exit code.

        Raises Halt when the run should not go on.
        """
        ready = False
        while not self.outside.stopping() and self.state.step < last:
            if not ready:  # nothing moves on meanwhile: a step may take minutes, and so may compiling
                compiles = self.config.run.compile
                self.outside.notifier.extend(COMPILE_SECONDS if compiles else FIRST_STEP_SECONDS)
                self.outside.notifier.status(f"{'compiles the model before' if compiles else 'at'} the first step")
            try:
                self._step()
            except Exhausted:
                reason = "data exhausted"
                self._checkpoint("final")
                break
            except Stopped:
                break
            if not ready:
                ready = True
                self.outside.notifier.ready(self.outside.console.line)
            self._edge(last)
        if not ready:
            stopped = self.outside.stopping()
            self.outside.notifier.ready("stopped before the first step" if stopped else "nothing left to train")
        return self._finish(reason)

    def announce(self, plan: RoundPlan, why: str) -> None:
        """Record a fallback round, and wait until the record is durable: no step of it may come first."""
        self.outside.events.append("fallback", **plan.to_json(), reason=why)
        if not self.feed.fell_back:  # the round before had a plan: said once, not every round
            text = f"{why}: goes on without one from step {plan.first}"
            self.outside.log.warning(text, extra={"event": "fallback", "step": plan.first})
        self._settle()

    def take(self, line: Line) -> None:
        """Record a round that begins; with the text of a policy that begins with it, durably: no step outlives that."""
        self.outside.events.append("round", **line.to_json())
        if line.policy_text is not None:
            self._settle()

    def _settle(self) -> None:
        """Wait until all events are durable."""
        while not self.outside.events.sync():
            self._pause("events cannot be written")
        self._paused = False

    def idle(self) -> None:
        """Hear the outside while a plan is waited for, before a step; raises Stopped when a stop is wished for."""
        demand_standing()
        if self.outside.stopping():
            raise Stopped
        wanted = self.outside.signals.checkpoint_wanted
        if wanted.is_set():
            wanted.clear()
            self._checkpoint("signal")

    def adopt(self, diet: Diet, kept: Collection[str]) -> None:
        """Go over to another policy, of whose arms `kept` run on from the one before."""
        self.looks.adopt(diet)
        self.guard.pivot(kept)
        step, policy = self.state.step, diet.regime.id
        text = f"step {step + 1} is the first of policy {policy}"
        self.outside.log.info(text, extra={"event": "pivot", "step": step, "policy": policy})

    # One step.

    def _step(self) -> None:
        began = time.monotonic()
        step = self.state.step + 1
        while self.outside.events.full:
            self._pause("events wait in memory, and the room for them is full")
        self._paused = False
        batch = self.feed.batch(step)
        lr = learning_rate(step, self.config.optimizer)
        skips = self.config.guard.spike == "skip"
        refuse = (lambda each: self._spike(arm_losses(batch, each)) is not None) if skips else None
        taken = self.stepper.take(batch, lr, self._hear, refuse, self.feed.prepare)
        self._record(step, batch, taken, lr, time.monotonic() - began)

    def _spike(self, arms: ArmLosses) -> float | None:
        """How many deviations the losses of a batch lie above what its arms usually give, if that is too many."""
        spike = self.guard.spike(arms)
        return spike if spike is not None and spike > SPIKE_SIGMA else None

    def _record(self, step: int, batch: Batch, taken: Taken, lr: float, seconds: float) -> None:
        """Put the step's figures into the events, let the guard judge them."""
        loss, arms, finite = taken.loss, arm_losses(batch, taken.each), taken.finite
        if finite and not taken.skipped and (spike := self._spike(arms)) is not None:
            text = f"loss {loss:.3f} lies {spike:.1f} deviations above what its arms usually give"
            self.outside.warn(self.state.step, "spike", text)
        self.guard.step(step, loss, arms, skipped=taken.skipped or not finite)
        told = figures(batch, taken, arms, self.feed, self.byte_lengths)
        self.outside.events.append("step", step=step, lr=lr, seconds=seconds, **told)
        self.outside.console.step(step, self.guard.ema, seconds, told["tokens"], self.publisher.published)
        self._judge(step)

    def _judge(self, step: int) -> None:
        """Halt, or warn once, when the run is sick after `step`."""
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

    # The step edge.

    def _edge(self, last: int) -> None:
        step = self.state.step
        demand_standing()
        self.outside.mend(step)
        self.publisher.poll()
        self.card.tell(step)
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
        """Publish the state if that is not done, and probe and audit it while the disk is at work; how the save ended
        is seen later."""
        step = self.state.step
        if not self.publisher.save(reason, self.feed):
            return
        if reason in ("initial", "cadence") and step % self.config.probe.every == 0:
            self.looks.measure(self.state.w, step)
        self.looks.sample(self.state.w, step)

    # Ends and waits.

    def _finish(self, reason: str) -> int:
        """Publish what is not yet published, and say how it ended."""
        if self.state.step >= self.config.optimizer.max_steps:
            reason = "finished"
        elif self.outside.signals.stop_wanted.is_set():
            reason = self.outside.signals.stop_reason or reason
        self.publisher.leave(self.state.step)
        saved = self.publisher.collect()
        if self.publisher.pending:
            self.publisher.save("stop", self.feed)
            saved = self.publisher.collect()
        self.publisher.left()
        published, unsaved = max(0, self.publisher.published), self.publisher.pending
        if unsaved:
            reason, detail = "unsaved", saved.error if saved is not None else "no save was made"
            lost = f"steps {published + 1} to {self.state.step} are lost: {detail}"
            self.outside.warn(self.state.step, "stopped unsaved", lost)
        self.outside.events.append("stop", step=published, reason=reason)
        self.outside.events.sync()
        self.outside.console.end(published, reason)
        return EXIT_REFUSED if unsaved else EXIT_OK

    def _hear(self) -> None:
        """Polled inside a step: it is finished whatever comes, but the service manager is told."""
        if self.outside.stopping():
            self.publisher.leave(self.state.step + 1)

    def _pause(self, why: str) -> None:
        """Wait a moment for something outside to change; raises Stopped when a stop is wished for."""
        demand_standing()
        if not self._paused:
            self._paused = True
            self.outside.warn(self.state.step, "paused", f"{why}: {self.outside.events.trouble}")
        self.outside.notifier.status(f"paused at step {self.state.step}: {why}: {self.outside.events.trouble}")
        if self.outside.stopping():
            raise Stopped
        time.sleep(PAUSE_SECONDS)
        self.outside.events.flush()
