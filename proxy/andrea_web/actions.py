"""What may be done from the page: stop, a checkpoint now, a pivot of limits. Each does what the verb of its name does.

Promises that a request names the run and the process (or the policy) that its page showed, and that nothing happens
when that is not what is there now: a page left open cannot act on the next run. Every request leaves a line in the
journal. Writes `policy.next.toml`, as `andrea pivot` does.
"""

from __future__ import annotations

import logging
import math
import signal
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from andrea_cli.fate import Request, must_be_free, save_first
from andrea_cli.proposal import Proposal, Wish, in_force, propose
from andrea_rundir import config
from andrea_rundir.faults import Fault, Refused, Usage
from andrea_rundir.names import RunDir
from andrea_service import identity
from andrea_service.presence import look

Asked = Mapping[str, Any]


def stop(run: RunDir, asked: Asked, who: str) -> dict[str, Any]:
    """SIGTERM to the trainer that was shown: `run`, `process`, and the run's `name` typed in confirmation."""
    name = config.load(run.run_toml).run.name
    if _text(asked, "name") != name:
        raise Refused("not stopped: this is not the name of the run", found=_text(asked, "name")[:100], expected=name)
    return _signal(run, asked, who, signal.SIGTERM, "stop")


def checkpoint(run: RunDir, asked: Asked, who: str) -> dict[str, Any]:
    """SIGUSR1 to the trainer that was shown: `run`, `process`."""
    return _signal(run, asked, who, signal.SIGUSR1, "checkpoint")


def pivot(run: RunDir, asked: Asked, who: str) -> dict[str, Any]:
    """Other `caps` and `floors` (arm to share) than those of `policy`: judged, and with `dry_run` false asked for."""
    settings = _same_run(run, asked)
    proposal = _proposal(run, settings, asked)
    told = {"step": proposal.step, "policy": proposal.before.id, "arms": [asdict(row) for row in proposal.rows]}
    if asked.get("dry_run") is not False:
        return {"asked": False, **told}
    trainer = look(run)
    if trainer.alive and trainer.identity is not None:
        save_first(run, only=identity.name(trainer.identity))
    Request(run, settings, proposal).write()
    _journal(f"a pivot from policy {proposal.before.id} was asked for on the page", who)
    return {"asked": True, **told}


def _proposal(run: RunDir, settings: config.RunConfig, asked: Asked) -> Proposal:
    now, policies = in_force(run, settings)
    if (shown := _text(asked, "policy")) != now.regime.id:
        raise Refused(
            "another policy is in force than the page showed",
            found=now.regime.id,
            expected=shown[:100],
            todo="look again, and ask again if it is still wanted",
        )
    must_be_free(run, now)
    if look(run).state == "finished":
        raise Refused("the run is over", where=str(run.root), todo="fork it with another policy")
    return propose(run, settings, now, policies, Wish(None, _shares(asked, "caps"), _shares(asked, "floors")))


def _signal(run: RunDir, asked: Asked, who: str, sig: signal.Signals, what: str) -> dict[str, Any]:
    _same_run(run, asked)
    pid = identity.send(run, sig, only=_text(asked, "process"))
    _journal(f"{what} was asked for on the page: {sig.name} to pid {pid}", who)
    return {"asked": True, "pid": pid}


def _same_run(run: RunDir, asked: Asked) -> config.RunConfig:
    settings = config.load(run.run_toml)
    if _text(asked, "run") != settings.run.id:
        raise Refused(
            "this page is of another run",
            where=str(run.root),
            found=settings.run.id,
            expected=_text(asked, "run")[:100],
            todo="load the page again",
        )
    return settings


def _text(asked: Asked, key: str) -> str:
    value = asked.get(key)
    if not isinstance(value, str):
        raise Usage(f"the request lacks {key}", expected="a text")
    return value


def _shares(asked: Asked, key: str) -> dict[str, float]:
    given = asked.get(key, {})
    if not isinstance(given, dict):
        raise Usage(f"{key} is no object", expected="arm to share of pulls")
    for arm, share in given.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not math.isfinite(share):
            raise Usage(f"the share of {arm[:100]} in {key} is no number", expected="a number from 0 to 1")
        if not 0 <= share <= 1:
            raise Usage(f"the share of {arm[:100]} in {key} is out of range", found=str(share), expected="from 0 to 1")
    return {arm: float(share) for arm, share in given.items()}


def refused(fault: Fault, what: str, who: str) -> None:
    """Note that a request was turned down."""
    _journal(f"{what} was asked for on the page and refused: {fault.what}", who)


def _journal(text: str, who: str) -> None:
    logging.getLogger("andrea").info("%s (%s)", text, who, extra={"event": "action", "who": who})
