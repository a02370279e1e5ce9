"""Everyone the trainer tells or listens to, in one place. Writes, through the event log, `events/`."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from andrea_rundir.eventlog import EventLog
from andrea_service.notify import Heartbeat, Notifier
from andrea_service.signals import Signals
from andrea_train.console import Console

WAIT_SECONDS = 60


@dataclass
class Outside:
    """The operator's signals, the service manager, the screen, the journal, and the run's history."""

    signals: Signals
    notifier: Notifier
    heartbeat: Heartbeat
    console: Console
    log: logging.Logger
    events: EventLog

    def stopping(self) -> bool:
        """Whether a stop is wished for. Asked in everything that can last, so it counts as a sign of life."""
        self.heartbeat.beat()
        return self.signals.stop_wanted.is_set()

    def warn(self, step: int, what: str, detail: str, *, event: str = "warning") -> None:
        """Something an operator should know: into the history and the journal (there as a message of kind `event`)."""
        self.events.append("warning", step=step, what=what, detail=detail)
        self.log.warning("%s: %s", what, detail, extra={"event": event, "step": step})

    def mend(self, step: int) -> None:
        """Go on with the history where somebody has removed it; said in what is begun."""
        if name := self.events.mend():
            text = f"{name} was removed: what the proxy had not read of it, and was synced, is lost; a new one is begun"
            self.warn(step, "events removed", text)

    def waits_for_plan(self) -> None:
        """Said once a second while it lasts: before the first step the service manager must know that it goes on."""
        self.notifier.extend(WAIT_SECONDS)
        self.notifier.status("waits for the plan of andrea-proxy")
