"""The saver: turns the state at a step edge into a durable `step_NNNNNN.bin` while training goes on.

Promises the order of DESIGN 3: events through S are durable, then the digest line, then the file under its name;
that two saves never overlap; that a failed one is reported at the next step edge and costs no older file; and that a
state with a value that is not finite is never published. Writes `step_NNNNNN.bin` and, with it, `SHA256SUMS`;
prunes what retention allows.
"""

from __future__ import annotations

import errno
import hashlib
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from andrea_rundir import digests
from andrea_rundir.config import CheckpointConfig
from andrea_rundir.events import EventLog
from andrea_rundir.names import RunDir, checkpoint_name
from andrea_rundir.publish import fsync_dir, publish_image
from andrea_rundir.retention import doomed
from andrea_train.state import Staging, State

PIECE = 16 << 20
IDLE_SECONDS = 0.1


class NotFinite(Exception):
    """The state has a value that is not a number, or a negative second moment: it must not be published."""


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
    """Owns the staging buffer and two threads, one that writes and one that digests."""

    def __init__(self, run: RunDir, staging: Staging, events: EventLog, config: CheckpointConfig) -> None:
        self._run = run
        self._staging = staging
        self._events = events
        self._config = config
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._digester = ThreadPoolExecutor(1, thread_name_prefix="digester")
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
        self._digester.shutdown()

    def _save(self, job: Job) -> Saved:
        began = time.monotonic()
        digest = self._digester.submit(self._digest)
        try:
            if not self._events.sync():
                raise OSError(errno.ENOSPC, self._events.trouble or "events cannot be written")
            hexdigest = self._publish(job, digest)
        except NotFinite as error:
            return Saved(job, None, str(error), not_finite=True)
        except OSError as error:
            digest.exception()  # the staging buffer is read until the digest is done
            self._prune(job.keep)
            return Saved(job, None, str(error))
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

    def _publish(self, job: Job, digest: Future[str]) -> str:
        name = checkpoint_name(job.step)

        def sealed() -> None:
            digests.record(self._run.sums, name, digest.result())

        publish_image(self._run.root / name, self._staging.image, sealed=sealed, progress=self._progress)
        return digest.result()

    def _progress(self, _written: int) -> None:
        self.pieces_written += 1

    def _digest(self) -> str:
        """SHA-256 of the staged bytes; raises NotFinite. Runs beside the write."""
        image = self._staging.image
        sha = hashlib.sha256()
        for start in range(0, len(image), PIECE):
            sha.update(image[start : start + PIECE])
        self._refuse_not_finite()
        return sha.hexdigest()

    def _refuse_not_finite(self) -> None:
        for name, part in (("weights", self._staging.w), ("m", self._staging.m), ("v", self._staging.v)):
            values = part.numpy()
            for start in range(0, len(values), PIECE):
                piece = values[start : start + PIECE]
                low, high = piece.min(), piece.max()  # NaN passes through both
                if not (np.isfinite(low) and np.isfinite(high)):
                    raise NotFinite(f"{name} has a value that is not finite")
                if name == "v" and low < 0:
                    raise NotFinite("v has a negative value")

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
