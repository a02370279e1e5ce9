"""The saver: turns the state at a step edge into a durable `step_NNNNNN.bin` while training goes on.

Promises the order of DESIGN 3: events through S are durable, then the digest line, then the file under its name;
that two saves never overlap; that a failed one is reported at the next step edge and costs no older file; and that a
state with a value that is not finite is never published. Writes `step_NNNNNN.bin` and, with it, `SHA256SUMS`;
prunes what retention allows.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from andrea_rundir import digests
from andrea_rundir.checkpoint import unsound
from andrea_rundir.eventlog import EventLog
from andrea_rundir.names import RunDir, checkpoint_name
from andrea_rundir.publish import fsync_dir, publish_image
from andrea_rundir.retention import doomed
from andrea_rundir.sections import CheckpointConfig
from andrea_service.signals import leave_aborts
from andrea_train.state import Staging, State

PIECE = 4 << 20
"""Bytes looked at in one go: both looks at them find them in the processor's cache."""
IDLE_SECONDS = 0.1


class NotFinite(Exception):
    """The state has a value that is not a number, or a negative second moment: it must not be published. Says which."""


@dataclass(frozen=True)
class Keep:
    """What retention must know beyond names: the step with the best probe, where a regression began, and the step
    after which the policy in force began."""

    best: int | None = None
    before: int | None = None
    pivot: int = 0


@dataclass(frozen=True)
class Job:
    """One save."""

    step: int
    reason: str
    keep: Keep
    retried: bool = False


@dataclass(frozen=True)
class Saved:
    """How a save ended: `digest` when durable, else `error`, and whether the state itself is at fault."""

    job: Job
    digest: str | None
    error: str | None = None
    not_finite: bool = False


class Saver:
    """Owns the staging buffer and three threads that read it beside each other: to write, to digest, to look."""

    def __init__(self, run: RunDir, staging: Staging, events: EventLog, config: CheckpointConfig) -> None:
        self._run = run
        self._staging = staging
        self._events = events
        self._config = config
        self._writer = ThreadPoolExecutor(1, "writer", leave_aborts)
        self._beside = ThreadPoolExecutor(2, "beside", leave_aborts)
        self._pending: Future[Saved] | None = None
        self.pieces_written = 0

    @property
    def busy(self) -> bool:
        """Whether a save is under way or its outcome has not been collected."""
        return self._pending is not None

    def submit(self, state: State, reason: str, keep: Keep) -> None:
        """Take a snapshot and start writing it. The outcome of the save before must have been collected."""
        assert self._pending is None, "two saves must never overlap"
        self._staging.snapshot(state)
        self._pending = self._writer.submit(self._save, Job(state.step, reason, keep))

    def retry(self, job: Job) -> None:
        """Write the same snapshot once more: it still lies in the staging buffer."""
        assert self._pending is None, "two saves must never overlap"
        again = Job(job.step, job.reason, job.keep, retried=True)
        self._pending = self._writer.submit(self._save, again)

    def poll(self) -> Saved | None:
        """The outcome of a save that has ended since the last call."""
        if self._pending is None or not self._pending.done():
            return None
        saved, self._pending = self._pending.result(), None
        return saved

    def settle(self, idle: Callable[[], None]) -> Saved | None:
        """Wait for the save under way, calling `idle` ten times a second."""
        while self._pending is not None and not self._pending.done():
            try:
                self._pending.exception(timeout=IDLE_SECONDS)
            except TimeoutError:
                idle()
        return self.poll()

    def close(self) -> None:
        """End the threads; a save under way is finished first."""
        self._writer.shutdown()
        self._beside.shutdown()

    def _save(self, job: Job) -> Saved:
        began = time.monotonic()
        self._staging.wait()
        digest, sound = self._beside.submit(self._digest), self._beside.submit(self._refuse_unsound)
        try:
            if not self._events.sync():
                raise OSError(self._events.trouble or "events cannot be written")
            hexdigest = self._publish(job, digest, sound)
        except NotFinite as error:
            return Saved(job, None, str(error), not_finite=True)
        except OSError as error:
            self._prune(job.keep)
            return Saved(job, None, str(error))
        finally:  # the staging buffer is read until both are done
            digest.exception()
            sound.exception()
        name = checkpoint_name(job.step)
        self._events.append(
            "checkpoint",
            step=job.step,
            file=name,
            bytes=len(self._staging.image),
            digest=hexdigest,
            seconds=time.monotonic() - began,
            reason=job.reason,
        )
        self._prune(job.keep)
        return Saved(job, hexdigest)

    def _publish(self, job: Job, digest: Future[str], sound: Future[None]) -> str:
        name = checkpoint_name(job.step)

        def sealed() -> None:
            sound.result()
            digests.record(self._run.sums, name, digest.result())

        publish_image(self._run.root / name, self._staging.image, sealed=sealed, progress=self._progress)
        return digest.result()

    def _progress(self, _written: int) -> None:
        self.pieces_written += 1

    def _digest(self) -> str:
        """SHA-256 of the staged bytes."""
        return hashlib.sha256(self._staging.image).hexdigest()

    def _refuse_unsound(self) -> None:
        """Raises NotFinite when the staged state must not be published."""
        image = self._staging.image
        for start in range(0, len(image), PIECE):
            if reason := unsound(start, image[start : start + PIECE], self._staging.n_params):
                raise NotFinite(reason)

    def _protected(self, present: Collection[int], keep: Keep) -> list[int]:
        """What is from before a regression, and the pivot's own file until the archive that links it is durable."""
        steps = [] if keep.before is None else [s for s in present if s <= keep.before]
        archived = self._run.archived(keep.pivot) / self._run.policy_toml.name
        return steps if archived.exists() else [*steps, *({keep.pivot} - {0})]

    def _prune(self, keep: Keep) -> None:
        """Remove what retention no longer needs; a disk that refuses is tried again next time."""
        try:
            self._remove_doomed(keep)
        except OSError as error:
            self._events.append("warning", step=None, what="not pruned", detail=str(error))

    def _remove_doomed(self, keep: Keep) -> None:
        present = self._run.checkpoints()
        gone = []
        for step in doomed(
            present.keys(),
            every=self._config.every,
            keep_last=self._config.keep_last,
            keep_every=self._config.keep_every_steps,
            best=keep.best,
            protected=self._protected(present, keep),
            regressed=keep.before is not None,
        ):
            try:
                present[step].unlink()
            except OSError as error:
                self._events.append("warning", step=step, what="not pruned", detail=str(error))
            else:
                gone.append(checkpoint_name(step))
        gone = [name for name in gone if not (self._run.kept / name).exists()]
        if gone:
            try:
                fsync_dir(self._run.root)  # a file that a power cut brings back must find its line
                digests.forget(self._run.sums, gone)
            except OSError as error:
                self._events.append("warning", step=None, what="digest lines not dropped", detail=str(error))
