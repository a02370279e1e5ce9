"""From a step edge to a durable checkpoint: the record of what the `.bin` cannot hold, the save, and how it ended.

Promises that the snapshot event comes before the file it explains, that a save that failed is tried once more and then
said, and that an audit is signed only with the digest of a file that is durable. Writes `events/` and, through the
saver, checkpoints.
"""

from __future__ import annotations

from contextlib import ExitStack

from andrea_service.notify import Extender
from andrea_train.feed import Feed
from andrea_train.guard import Guard
from andrea_train.looks import Looks
from andrea_train.outside import Outside
from andrea_train.saver import Keep, Saved, Saver
from andrea_train.state import State


class Publisher:
    """The saves of a run, one at a time; `published` is the newest step whose checkpoint is durable, -1 for none."""

    def __init__(
        self, state: State, saver: Saver, guard: Guard, looks: Looks, outside: Outside, published: int
    ) -> None:
        self._state, self._saver, self._guard, self._looks, self._outside = state, saver, guard, looks, outside
        self.published = published
        self._grown, self._leaving, self._told = 0, ExitStack(), False

    @property
    def pending(self) -> bool:
        """Whether the state as it is now has no durable checkpoint yet."""
        return self.published != self._state.step

    def save(self, reason: str, feed: Feed) -> bool:
        """Hand a snapshot of the state to the saver, once the save before is done; False if that was of this state."""
        self.collect()
        if not self.pending:
            return False
        self._outside.events.append(
            "snapshot",
            step=self._state.step,
            guard=self._guard.to_json(),
            round=feed.round.to_json() if feed.round else None,
            cursors=feed.cursors,
            credits=feed.credits,
        )
        regressed = self._guard.regressed(self._state.step) is not None
        before = self._guard.best_before_regress() if regressed else None
        keep = Keep(best=self._guard.best_probe_step, before=before, pivot=feed.diet.regime.start)
        self._saver.submit(self._state, reason, keep)
        return True

    def poll(self) -> None:
        """Look at how the save under way ended, if it has."""
        if (saved := self._saver.poll()) is not None:
            self._look_at(saved)

    def collect(self) -> Saved | None:
        """Wait for the save under way, if any, and look at how it ended."""
        saved = None
        while self._saver.busy:  # twice for one that failed: it is tried once more
            saved = self._saver.settle(self._attend)
            if saved is not None:
                self._look_at(saved)
        return saved

    def leave(self, step: int) -> None:
        """Tell the service manager, once, that we stop after `step`: from now on bytes that become durable buy time."""
        if not self._told:
            self._told = True
            self._outside.notifier.stopping(f"stopping after step {step}")
            self._leaving.enter_context(Extender(self._outside.notifier, lambda: self._saver.pieces_written))

    def left(self) -> None:
        """All is saved that can be: no more time is bought."""
        self._leaving.close()

    def close(self) -> None:
        """Let the saver go."""
        self._saver.close()

    def _look_at(self, saved: Saved) -> None:
        if saved.digest is not None:
            self.published = saved.job.step
            self._outside.console.saved(saved.job.step, saved.digest)
            self._looks.sign(saved.job.step, saved.digest)
        elif saved.not_finite:
            why = f"diverged: the state after step {saved.job.step} was not published: {saved.error}"
            raise self._guard.halt(self._state.step, why)
        else:
            self._outside.warn(self._state.step, "save failed", f"step {saved.job.step}: {saved.error}")
            if saved.job.retried:
                self._looks.sign(saved.job.step, None)
            else:
                self._saver.retry(saved.job)

    def _attend(self) -> None:
        """Polled while a save is waited for: not the waiting but the bytes are a sign of life."""
        if (grown := self._saver.pieces_written) != self._grown:
            self._grown = grown
            self._outside.heartbeat.beat()
        if self._outside.signals.stop_wanted.is_set():
            self.leave(self._state.step)
