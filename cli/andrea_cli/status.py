"""Say what a run does now: its state in a sentence, step, loss, speed, time left, newest checkpoint, warnings.

Everything shown stands in the run's files. Reads only; exits 0 whenever the run can be read, whatever its state;
1 when there is no run, or with --verify when the newest checkpoint is not what its digest line says.
"""

from __future__ import annotations

import hashlib
import time
from argparse import ArgumentParser, Namespace
from datetime import datetime
from typing import Any

from andrea_cli import arms, facts, output, service
from andrea_rundir import digests
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED
from andrea_rundir.names import RunDir, locate
from andrea_service.presence import Presence, look

SHOWN_WARNINGS = 5


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --verify."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--verify", action="store_true", help="read the newest checkpoint and check its digest")


def run(args: Namespace) -> int:
    """Print the status."""
    found = status(locate(args.run), verify=args.verify, now=time.time())
    output.show(args, found, lines(found))
    checkpoint = found["checkpoint"]
    return EXIT_REFUSED if checkpoint is not None and checkpoint["verified"] is False else EXIT_OK


def status(run: RunDir, *, verify: bool, now: float) -> dict[str, Any]:
    """All that is known, as --json prints it; unknown values are None."""
    presence = look(run)
    try:
        tables, recent, newest = facts.settings(run), facts.recent(run), _newest(run, verify=verify, now=now)
    except PermissionError:  # the state says so
        tables, recent, newest = {}, facts.Recent(), None
    total = facts.key(tables, "optimizer", "max_steps")
    total = total if isinstance(total, int) else None
    pid = presence.identity.get("pid") if presence.identity and presence.alive else None
    unit = service.unit_of(pid) if isinstance(pid, int) else None
    return {
        "run": str(run.root),
        "name": facts.key(tables, "run", "name"),
        "state": presence.state,
        "sentence": presence.sentence,
        "pid": pid,
        "unit": unit,
        "starts_at_boot": service.starts_at_boot(unit) if unit is not None else None,
        "step": recent.step,
        "max_steps": total,
        "loss": facts.number(recent.steps[0], "loss") if recent.steps else None,
        "tokens_per_second": facts.tokens_per_second(recent.steps),
        "eta_seconds": _eta(presence, recent, total, now),
        "checkpoint": newest,
        "audit": _only(recent.audit, "step", "score", "alarm"),
        "probe": _only(recent.probe, "step", "mean", "arms"),
        "warnings": [_only(event, "step", "time", "what", "detail") for event in recent.warnings],
        "proxy": look(run, "proxy").sentence,
        "curriculum": arms.known(run),
    }


def _eta(presence: Presence, recent: facts.Recent, total: int | None, now: float) -> float | None:
    """Seconds until the last step, while it runs."""
    pace = facts.seconds_per_step(recent.steps)
    if not presence.alive or recent.step is None or total is None or pace is None:
        return None
    latest = facts.when(recent.steps[0])
    since = max(0.0, now - latest) if latest is not None else 0.0
    return max(0.0, (total - recent.step) * pace - since)


def _newest(run: RunDir, *, verify: bool, now: float) -> dict[str, Any] | None:
    """The newest checkpoint on disk, and whether SHA256SUMS knows it."""
    for step, path in reversed(run.checkpoints().items()):
        try:
            stat = path.stat()
            line = digests.read(run.sums).get(path.name)
            verified = None
            if verify and line is not None:
                with path.open("rb") as file:
                    verified = hashlib.file_digest(file, "sha256").hexdigest() == line
        except FileNotFoundError:  # pruned since it was listed
            continue
        return {
            "step": step,
            "path": str(path),
            "bytes": stat.st_size,
            "age_seconds": max(0.0, now - stat.st_mtime),
            "digest": line,
            "verified": verified,
        }
    return None


def _only(event: facts.Event | None, *names: str) -> dict[str, Any] | None:
    return None if event is None else {name: event.get(name) for name in names}


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    shown = [found["sentence"]]
    if found["state"] in ("starting", "running"):
        shown.append(found["proxy"])

    def say(name: str, text: str) -> None:
        shown.append(f"{name + ':':<12}{text}")

    step, total = found["step"], found["max_steps"]
    if step is not None:
        share = f" ({100 * step / total:.1f} %)" if total else ""
        say("step", f"{step:,} of {total:,}{share}" if total else f"{step:,}")
    if found["loss"] is not None:
        say("loss", f"{found['loss']:.4f} nats/token")
    if found["tokens_per_second"] is not None:
        say("speed", f"{found['tokens_per_second']:,.0f} tokens/s")
    if found["eta_seconds"] is not None:
        end = datetime.now().astimezone().timestamp() + found["eta_seconds"]
        say("time left", f"{output.span(found['eta_seconds'])} (until {datetime.fromtimestamp(end):%Y-%m-%d %H:%M})")
    say("checkpoint", _checkpoint_line(found["checkpoint"]))
    if (probe := found["probe"]) is not None and probe["mean"] is not None:
        say("held out", f"{probe['mean']:.3f} bits/byte at step {probe['step']:,}")
    if (audit := found["audit"]) is not None:
        alarm = ", ALARM: its samples run in circles" if audit["alarm"] else ""
        say("samples", f"score {audit['score']} at step {audit['step']:,}{alarm}")
    if found["starts_at_boot"] is False:
        unit = found["unit"].removesuffix(".service")
        say("warning", f"{unit} is not enabled: after a reboot nobody starts it; `systemctl enable {unit}`")
    for warning in found["warnings"][:SHOWN_WARNINGS]:
        say("warning", f"step {warning['step']}: {warning['what']}: {warning['detail']}")
    if (more := len(found["warnings"]) - SHOWN_WARNINGS) > 0:
        say("warning", f"and {more} more since the last start; see events/ or the journal")
    if found["curriculum"] is not None:
        shown += ["", *arms.lines(found["curriculum"])]
    return shown


def _checkpoint_line(checkpoint: dict[str, Any] | None) -> str:
    if checkpoint is None:
        return "none yet"
    digest = {True: "digest verified", False: "DIGEST DOES NOT MATCH", None: "digest on record"}[checkpoint["verified"]]
    if checkpoint["digest"] is None:
        digest = "no line in SHA256SUMS"
    name = checkpoint["path"].rsplit("/", 1)[-1]
    age = output.span(checkpoint["age_seconds"])
    return f"{name}, {age} ago, {output.size(checkpoint['bytes'])}, {digest}"
