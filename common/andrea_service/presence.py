"""Is it alive? The state of a service of a run, in one word and one human sentence.

The truth is the flock on `train.lock` or `proxy.lock`; the identity in it says whose it is; the last event
says how the one before ended. A trainer that took the lock and ends with 0 or 78 writes a `stop` or `halt`
event, even if it had nothing to do: an end without one is *stale*. The proxy writes no events; its end was
clean if it took its pidfile away. Writes nothing. Imports `andrea_rundir` and the standard library.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from andrea_rundir import events
from andrea_rundir.lock import Probe, probe
from andrea_rundir.names import RunDir
from andrea_service import process

State = Literal["starting", "running", "stopped", "finished", "halted", "stale", "foreign", "unknown"]
Which = Literal["train", "proxy"]

_LIFE = ("start", "step", "stop", "halt")
_PATIENCE = 0.25  # seconds: a new owner writes its identity a moment after it gets the lock
_FINISHED = {"finished": "all steps are done", "data exhausted": "the data is exhausted"}
_STOPPED = {
    "sigterm": "as asked (SIGTERM)",
    "sigint": "as asked (Ctrl-C)",
    "until-step": "as asked (--until-step)",
}


@dataclass(frozen=True)
class Presence:
    """What was seen: `last_event` is the newest start, step, stop or halt event, if any."""

    state: State
    sentence: str
    identity: dict[str, Any] | None
    last_event: dict[str, Any] | None

    @property
    def alive(self) -> bool:
        """Whether it may be signalled."""
        return self.state in ("starting", "running")


def look(run: RunDir, which: Which = "train") -> Presence:
    """The state of a service of `run` now. Refused without such a run; what cannot be read is *unknown*."""
    lock = run.train_lock if which == "train" else run.proxy_lock
    try:
        if not run.run_toml.exists():
            raise run.missing()
        seen, mismatch = _owner(lock)
        last = _last_event(run.events) if which == "train" else None
        if not seen.held:
            state, sentence = _ended(run, seen, last) if which == "train" else _proxy_ended(run)
        elif mismatch is None:
            state, sentence = _alive(which, seen.identity or {}, last)
        else:
            state, sentence = mismatch.state, f"{_name(which)}: the lock is held, but {mismatch}."
            sentence += f" Find the holder with `fuser -v {lock}`." if state == "foreign" else " Look as root."
    except OSError as error:
        return Presence("unknown", f"{_name(which)}: cannot be read: {_reason(error)}. Look as root.", None, None)
    return Presence(state, sentence, seen.identity, last)


def _owner(lock: Path) -> tuple[Probe, process.Mismatch | None]:
    """The lock, and what is wrong with the identity of its holder, if that stays wrong."""
    until = time.monotonic() + _PATIENCE
    while True:
        seen = probe(lock)
        if not seen.held:
            return seen, None
        try:
            os.close(process.hold(seen.identity or {}))
            return seen, None
        except process.Mismatch as mismatch:
            if time.monotonic() >= until:
                return seen, mismatch
        time.sleep(0.02)


def _last_event(folder: Path) -> dict[str, Any] | None:
    return next((event for event in events.read_back(folder) if event.get("event") in _LIFE), None)


def _before(event: Mapping[str, Any] | None, identity: Mapping[str, Any]) -> bool:
    """Whether `event` (both times are UTC text of one form) is not of the process with this identity."""
    return event is None or str(event.get("time", "")) < str(identity.get("since", ""))


def _alive(which: Which, identity: Mapping[str, Any], last: Mapping[str, Any] | None) -> tuple[State, str]:
    who = f"{_name(which)} (pid {identity.get('pid')})"
    if which == "proxy":
        return "running", f"{who} is running."
    if last is None or last["event"] == "start" or _before(last, identity):
        return "starting", f"{who} is starting: no step of it yet."
    if last["event"] != "step":
        return "running", f"{who} is about to exit: its {last['event']} is on record."
    return "running", f"{who} is running; its last step on record is {last.get('step')}."


def _ended(run: RunDir, seen: Probe, last: Mapping[str, Any] | None) -> tuple[State, str]:
    if not run.train_lock.exists():  # a fork has its parent's events, but nobody has worked on it
        return "stopped", "andrea-train was never started here: `systemctl start andrea-train`."
    if last is None or _before(last, seen.identity or {}):
        return "stale", (
            "andrea-train took the lock and ended before it recorded anything (no device, killed, power cut):"
            " see `journalctl -u andrea-train`."
        )
    step, reason = last.get("step"), str(last.get("reason", ""))
    if last["event"] == "halt":
        return "halted", f"andrea-train halted at step {step}: {reason}. It stays down until that is settled."
    if last["event"] != "stop":
        return "stale", (
            f"andrea-train ended without a word after step {step} (killed, a crash or a power cut)."
            " A start goes on from the newest valid checkpoint."
        )
    if reason in _FINISHED:
        return "finished", f"andrea-train finished at step {step}: {_FINISHED[reason]}."
    how = _STOPPED.get(reason, f"({reason})")
    return "stopped", f"andrea-train stopped {how} at step {step}; a start goes on from there."


def _proxy_ended(run: RunDir) -> tuple[State, str]:
    if run.proxy_pid.exists():
        return (
            "stale",
            "andrea-proxy ended without a word (killed, a crash or a power cut): training goes on.",
        )
    return (
        "stopped",
        "andrea-proxy does not run: training goes on without it. `systemctl start andrea-proxy`.",
    )


def _name(which: Which) -> str:
    return f"andrea-{which}"


def _reason(error: OSError) -> str:
    return f"{error.strerror}: {error.filename}" if error.filename else str(error)
