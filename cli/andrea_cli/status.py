"""Say what a run does now: its state in a sentence, step, loss, speed, time left, newest checkpoint, restarts and
warnings.

Everything shown stands in the run's files, so it survives restarts and pivots. With --watch it is drawn again every few
seconds until Ctrl-C; with --json as well, an object a line. Reads only; exits 0 whenever the run can be read, whatever
its state; 1 when there is no run, or with --verify when the newest checkpoint is not what its digest line says.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from datetime import datetime
from typing import Any

from andrea_cli import arms, facts, output, service
from andrea_cli.arguments import seconds
from andrea_cli.lives import Lives, lives
from andrea_cli.redraw import redraw
from andrea_cli.vitals import newest_checkpoint, vitals
from andrea_rundir.faults import EXIT_OK, EXIT_REFUSED
from andrea_rundir.names import RunDir, locate
from andrea_service.presence import look

SHOWN_WARNINGS = 5
WATCH_SECONDS = 2.0


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --verify or --watch."""
    parser.add_argument("run", metavar="RUN")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--verify", action="store_true", help="read the newest checkpoint and check its digest")
    how.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=seconds,
        const=WATCH_SECONDS,
        help=f"show it again every so often (default {WATCH_SECONDS:g}), until Ctrl-C",
    )


def run(args: Namespace) -> int:
    """Print the status, once or until Ctrl-C."""
    directory = locate(args.run)

    def draw() -> list[str]:
        found = status(directory, verify=False, now=time.time())
        return [output.encoded(found)] if args.json else [*lines(found), ""]

    if args.watch is not None:
        redraw(draw, args.watch)
        return EXIT_OK
    found = status(directory, verify=args.verify, now=time.time())
    output.show(args, found, lines(found))
    checkpoint = found["checkpoint"]
    return EXIT_REFUSED if checkpoint is not None and checkpoint["verified"] is False else EXIT_OK


def status(run: RunDir, *, verify: bool, now: float) -> dict[str, Any]:
    """All that is known, as --json prints it; unknown values are None."""
    presence, proxy = look(run), look(run, "proxy")
    try:
        tables, recent, past = facts.settings(run), facts.recent(run), lives(run)
        newest, pivot = newest_checkpoint(run, verify=verify, now=now), _pivot(run)
    except PermissionError:  # the state says so
        tables, recent, past, newest, pivot = {}, facts.Recent(), Lives(), None, None
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
        **vitals(run, presence, tables, recent, now),
        "card": _only(recent.card, "time", "memory", "memory_total", "temperature", "power", "power_limit"),
        "checkpoint": newest,
        "audit": _only(recent.audit, "step", "score", "alarm"),
        "probe": _only(recent.probe, "step", "mean", "arms"),
        **asdict(past),
        "warnings": [_only(event, "step", "time", "what", "detail") for event in recent.warnings],
        "proxy": proxy.sentence,
        "proxy_state": proxy.state,
        "pivot": pivot,
        "curriculum": arms.known(run),
    }


def _pivot(run: RunDir) -> str | None:
    """How far a pivot that is under way has come."""
    return "pending" if run.policy_pending.exists() else "requested" if run.policy_next.exists() else None


def _only(event: facts.Event | None, *names: str) -> dict[str, Any] | None:
    return None if event is None else {name: event.get(name) for name in names}


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    shown = [found["sentence"]]
    if found["state"] in ("starting", "running") or found["proxy_state"] in ("starting", "running"):
        shown.append(found["proxy"])

    def say(name: str, text: str) -> None:
        shown.append(f"{name + ':':<12}{text}")

    step, total = found["step"], found["max_steps"]
    if step is not None:
        share = f" ({100 * step / total:.1f} %)" if total else ""
        say("step", f"{step:,} of {total:,}{share}" if total else f"{step:,}")
    if found["loss"] is not None or found["ema"] is not None:
        say("loss", _loss_line(found))
    if found["tokens_per_second"] is not None:
        say("speed", f"{found['tokens_per_second']:,.0f} tokens/s")
    if found["eta_seconds"] is not None:
        end = datetime.now().astimezone().timestamp() + found["eta_seconds"]
        say("time left", f"{output.span(found['eta_seconds'])} (until {datetime.fromtimestamp(end):%Y-%m-%d %H:%M})")
    if found["card"] is not None and found["state"] in ("starting", "running"):
        say("card", _card_line(found["card"]))
    say("checkpoint", _checkpoint_line(found["checkpoint"]))
    if (probe := found["probe"]) is not None and probe["mean"] is not None:
        say("held out", f"{probe['mean']:.3f} bits/byte at step {probe['step']:,}")
    if (audit := found["audit"]) is not None:
        alarm = ", ALARM: its samples run in circles" if audit["alarm"] else ""
        say("samples", f"score {audit['score']:.1f} at step {audit['step']:,}{alarm}")
    if found["restarts"]:
        say("restarts", _restarts_line(found))
    if found["pivot"] is not None:
        say("pivot", _PIVOT[found["pivot"]])
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


_PIVOT = {
    "requested": "asked for; andrea-proxy takes it up as soon as it runs",
    "pending": "taken up; it takes effect at the next checkpoint of the cadence that is not planned yet",
}


def _loss_line(found: dict[str, Any]) -> str:
    loss = "none" if found["loss"] is None else f"{found['loss']:.4f}"
    if found["ema"] is None:
        return f"{loss} nats/token"
    where = "" if found["ema_step"] == found["step"] else f" at step {found['ema_step']:,}"
    return f"{loss} nats/token, {found['ema']:.4f} smoothed{where}"


def _restarts_line(found: dict[str, Any]) -> str:
    parts = []
    if found["steps_lost"]:
        parts.append(f"{found['steps_lost']:,} steps trained again ({output.span(found['seconds_lost'])})")
    if found["seconds_down"]:
        parts.append(f"{output.span(found['seconds_down'])} not running after ends that nobody asked for")
    return f"{found['restarts']:,}; lost: {', '.join(parts) or 'nothing'}"


def _card_line(card: dict[str, Any]) -> str:
    """What the card told of itself, at most ten seconds ago while steps are short."""
    parts = []
    if card["memory"] is not None and card["memory_total"] is not None:
        parts.append(f"{output.size(card['memory'])} of {output.size(card['memory_total'])}")
    if card["temperature"] is not None:
        parts.append(f"{card['temperature']} °C")
    if card["power"] is not None:
        limit = f" of {card['power_limit']:.0f}" if card["power_limit"] is not None else ""
        parts.append(f"{card['power']:.0f}{limit} W")
    return ", ".join(parts) or "says nothing of itself"


def _checkpoint_line(checkpoint: dict[str, Any] | None) -> str:
    if checkpoint is None:
        return "none yet"
    digest = {True: "digest verified", False: "DIGEST DOES NOT MATCH", None: "digest on record"}[checkpoint["verified"]]
    if checkpoint["digest"] is None:
        digest = "no line in SHA256SUMS"
    name = checkpoint["path"].rsplit("/", 1)[-1]
    age = output.span(checkpoint["age_seconds"])
    return f"{name}, {age} ago, {output.size(checkpoint['bytes'])}, {digest}"
