"""The process around the desk: one per run, heard and seen by the service manager, ended by SIGTERM with all flushed.

Promises that a second proxy changes nothing, that it starts before, after or without the trainer, and that a full
disk, or a run that was moved away, makes it wait and say so. Writes no file itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from andrea_proxy.desk import Desk
from andrea_proxy.watch import Watch
from andrea_rundir import config, seed
from andrea_rundir.faults import EXIT_OK, Fault
from andrea_rundir.lock import demand_standing, gone
from andrea_rundir.names import RunDir
from andrea_service import journal
from andrea_service.held import held
from andrea_service.notify import Heartbeat, Notifier
from andrea_service.signals import Signals, take_aborts

TROUBLE_SECONDS = 1.0
START_SECONDS = 60.0


Beside = Callable[[RunDir], AbstractContextManager[object]]
"""What is to run beside the desk while the lock is held: the page."""


def serve(run: RunDir, signals: Signals, beside: Beside = lambda run: nullcontext()) -> int:
    """Hold the proxy's lock of a run and serve it until a stop is wished for; the exit code."""
    with held(run, run.proxy_lock, run.proxy_pid) as settings:
        seed.refuse_another(run, settings)
        journal.setup(settings.run.name)
        notifier = Notifier()
        service = _Service(run, signals, notifier)
        with beside(run):
            while (again := service.serve(settings)) is not None:
                settings = again
        notifier.stopping("all is written")
    return EXIT_OK


class _Service:
    """Turns, one after another, until the outside wishes for an end."""

    def __init__(self, run: RunDir, signals: Signals, notifier: Notifier) -> None:
        self._run, self._signals, self._notifier = run, signals, notifier
        self._heartbeat = Heartbeat(notifier)
        self._ready = False
        self._away = False
        """Whether the run was gone since the desk was opened: what was read meanwhile may be nobody's."""
        self._told = ("", 0.0)

    def serve(self, settings: config.RunConfig) -> config.RunConfig | None:
        """The configuration with which all is to be read anew: another one, with which the trainer has started; or the
        same, where a file is gone. None at an end."""
        log = journal.setup(settings.run.name)
        if not self._ready:
            self._notifier.extend(START_SECONDS)
        again = None
        if (desk := self._open(settings, log)) is None:
            return None
        with Watch(self._run, desk.say) as watch:
            take_aborts()
            while again is None and not self._stopping():
                trouble = self._turn(desk)
                if not self._ready and self._alive():
                    self._ready = True
                    self._notifier.ready(desk.line)
                    log.info("%s", desk.line, extra={"event": "ready", "step": desk.fold.step})
                if trouble:
                    self._signals.stop_wanted.wait(TROUBLE_SECONDS)
                elif (again := self._anew(desk, settings)) is None:
                    watch.wait(self._stopping, desk.round_seconds / 4)  # the trainer waits for no plan
        if again is not None:
            desk.let_go()
            return again
        demand_standing()  # else what is written now would lie in somebody else's run
        try:
            desk.close()
        except OSError as error:  # nothing is lost: the events have it all
            desk.say(f"not everything could be written: {error.strerror}: {error.filename or self._run.root}")
        log.info("stops at %s", desk.line, extra={"event": "stop", "step": desk.fold.step})
        return None

    def _open(self, settings: config.RunConfig, log: logging.Logger) -> Desk | None:
        """A desk: at a start now or not at all; later, when the disk lets it be opened. None at an end."""
        told = ""
        while True:
            try:
                demand_standing()
                return self._standing(Desk(self._run, settings, log))
            except (OSError, Fault) as error:
                if not self._ready or not _passes(error):
                    raise
                if (what := self._waits(error)) != told:
                    told = what
                    log.warning("%s", what, extra={"event": "warning", "step": 0})
                self._status(what)
                self._heartbeat.beat()
            if self._signals.stop_wanted.wait(TROUBLE_SECONDS):
                demand_standing()
                return None

    def _standing(self, desk: Desk) -> Desk:
        """The desk, if it was opened over the run and not over the hole that this has left."""
        try:
            demand_standing()
        except Fault:
            desk.let_go()
            raise
        self._away = False
        return desk

    def _turn(self, desk: Desk) -> bool:
        """One turn; whether the disk refused something, or the run is no longer where it was: it may come back."""
        try:
            demand_standing()
            if not self._away:
                desk.turn(self._alive)
        except (OSError, Fault) as error:
            if not _passes(error):
                raise
            self._away = self._away or gone() is not None
            what = self._waits(error)
            desk.say_once("trouble", what)
            self._status(what)
            return True
        desk.say_once("trouble", "")
        self._status(desk.line)
        return False

    def _waits(self, error: OSError | Fault) -> str:
        """What it waits for the end of; a run that is gone is behind whatever else went wrong."""
        cause = gone() or error
        if isinstance(cause, Fault):
            return f"waits: {cause.what}: {self._run.root}"
        return f"waits: {cause.strerror}: {cause.filename or self._run.root}"

    def _status(self, text: str) -> None:
        """At most once a second, and only what is new."""
        told, when = self._told
        if text != told and (now := time.monotonic()) - when >= 1.0:
            self._told = (text, now)
            self._notifier.status(text)

    def _alive(self) -> bool:
        """Looked at wherever there may be much to do."""
        self._heartbeat.beat()
        if not self._ready:
            self._notifier.extend(START_SECONDS)
        return not self._signals.stop_wanted.is_set()

    def _stopping(self) -> bool:
        self._heartbeat.beat()
        return self._signals.stop_wanted.is_set()

    def _anew(self, desk: Desk, settings: config.RunConfig) -> config.RunConfig | None:
        """The configuration for another desk, if there must be one."""
        if self._away:
            desk.say("the run is back: all is opened anew")
            return settings
        if (now := self._changed(desk, settings)) is not None:
            return now
        if not desk.lost or self._signals.stop_wanted.wait(TROUBLE_SECONDS):  # as a file, or with a whole run?
            return None
        if (lost := desk.lost) and gone() is None:
            desk.say(f"{', '.join(lost)} was removed: all is opened, and mended, anew")
            return settings
        return None

    def _changed(self, desk: Desk, settings: config.RunConfig) -> config.RunConfig | None:
        """Another configuration, with which the trainer has started."""
        if (started := desk.started) is None:
            return None
        if _relevant(started["config"]) == _relevant(settings.model_dump(mode="json")):
            desk.started = None
            return None
        try:
            now = config.load(self._run.run_toml)
        except (OSError, Fault) as error:  # being written, or gone: looked at again
            why = "; ".join(error.lines()) if isinstance(error, Fault) else error.strerror
            desk.say_once("run.toml", f"run.toml has changed and cannot be read: {why}")
            return None
        desk.started = None
        return now if _relevant(now.model_dump(mode="json")) == _relevant(started["config"]) else None


def _passes(error: OSError | Fault) -> bool:
    """Whether what a run met may be over in a while: the disk's refusals, and all of a run that is gone."""
    return isinstance(error, OSError) or gone() is not None


def _relevant(tables: dict[str, Any]) -> tuple[object, ...]:
    """The keys that planning depends on."""
    return (
        tables["run"]["seed"],
        tables["model"],
        tables["optimizer"]["batch_size"],
        tables["optimizer"]["max_steps"],
        tables["checkpoint"]["every"],
    )
