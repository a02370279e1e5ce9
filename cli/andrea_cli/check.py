"""Try a run before it costs three weeks: a few real steps on its device, and what they say about the whole.

Speed, time to the end, memory, disk that retention keeps, bytes written a day, how far back checkpoints reach, epochs
of each arm, and warnings; on CUDA the driver, the torch build and the card, or why there is none. Trains in a scratch
directory inside RUN, which is removed; the run itself is not touched. Exits 0 when the run could start; 1 when it
trains right now or the trial fails; 69 when its device cannot be used; 78 when its files are not in order.
"""

from __future__ import annotations

import math
import os
import shutil
from argparse import ArgumentParser, Namespace
from typing import Any

from andrea_cli import facts, forecast, output
from andrea_cli.arguments import seconds
from andrea_cli.ask import ask
from andrea_corpus.ledger import fingerprints
from andrea_corpus.shards import read_meta
from andrea_rundir import config, policy
from andrea_rundir.faults import EXIT_OK, Refused
from andrea_rundir.names import RunDir, locate
from andrea_service.presence import look

OWNERS = True
MUCH_A_DAY = 1e12
MANY_EPOCHS = 4.0
"""Past about four epochs repeated text teaches clearly less (Muennighoff et al. 2023, arXiv 2305.16264)."""


def add_arguments(parser: ArgumentParser) -> None:
    """RUN, --seconds."""
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--seconds", metavar="S", type=seconds, default=20.0, help="train for so long (default 20)")


def run(args: Namespace) -> int:
    """Try, reckon, print."""
    directory = locate(args.run)
    facts.settings(directory)
    presence = look(directory)
    if presence.alive:
        raise Refused(
            "a run that trains cannot be tried beside itself",
            where=str(directory.root),
            found=presence.sentence,
            todo="`andrea status` shows its speed and the time left; `andrea stop` ends it",
        )
    settings, rules = config.load(directory.run_toml), policy.load(directory.policy_toml)
    metas = {arm: read_meta(directory.data, name) for arm, name in fingerprints(directory, rules).items()}
    tokens = {arm: meta.train_tokens for arm, meta in metas.items() if meta is not None}
    measured = ask("trial", {"root": str(directory.root), "seconds": args.seconds})
    found = reckon(directory, settings, rules, tokens, measured)
    output.show(args, found, lines(found, settings))
    return EXIT_OK


def reckon(
    run: RunDir,
    settings: config.RunConfig,
    rules: policy.Policy,
    tokens: dict[str, int],
    measured: dict[str, Any],
) -> dict[str, Any]:
    """Everything that is printed, as --json has it."""
    done = max(run.checkpoints(), default=0)
    times = forecast.times(settings, measured, done)
    whole = forecast.times(settings, measured, 0).total
    step = whole / settings.optimizer.max_steps
    found: dict[str, Any] = {
        "run": str(run.root),
        "device": settings.run.device,
        "precision": settings.run.precision,
        "threads": settings.run.threads,
        "cpu": measured["cpu"],
        "cuda": measured["cuda"],
        "done": done,
        "max_steps": settings.optimizer.max_steps,
        "tried_steps": measured["steps"],
        "steps_per_second": 1 / step,
        "tokens_per_second": measured["tokens"] / step,
        "seconds": {"total": times.total, **vars(times)},
        "measured": measured,
        "memory": measured["memory"],
        "memory_total": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "card_memory": measured.get("card_memory"),
        "card_total": measured.get("card_total"),
        "disk": forecast.disk(settings, measured, whole) | {"free": shutil.disk_usage(run.root).free},
        "reach": forecast.reach(settings),
        "epochs": forecast.epochs(settings, rules, tokens),
    }
    return {**found, "warnings": warnings(found, settings, rules)}


def warnings(found: dict[str, Any], settings: config.RunConfig, rules: policy.Policy) -> list[str]:
    """What an owner would want to know before the start."""
    disk, seconds, said = found["disk"], found["seconds"], []
    every, step = settings.checkpoint.every, 1 / found["steps_per_second"]
    if disk["a_day"] > MUCH_A_DAY:
        fit = every * math.ceil(disk["a_day"] / MUCH_A_DAY)
        said.append(f"it writes {output.size(disk['a_day'])} a day: [checkpoint] every = {fit} would spare the disk")
    missing = disk["peak"] + disk["history"] - disk["free"]
    if not found["done"] and missing > 0:
        said.append(f"the disk is too small by {output.size(missing)}: lower keep_last, or raise every or keep_every")
    if found["measured"]["save_seconds"] > every * step:
        said.append("saving takes longer than the steps between two checkpoints: raise [checkpoint] every")
    aside = seconds["checkpoints"] + seconds["probes"]
    if seconds["steps"] and aside > 0.1 * seconds["steps"]:
        share = aside / seconds["total"]
        said.append(f"audits and probes take {share:.0%} of the time: fewer checkpoints, probes or sample tokens")
    if settings.round_steps == 1:
        said.append(f"[checkpoint] every = {every} has no divisor up to 20: each step is a round of the plan")
    for used, total, what in (
        (found["memory"], found["memory_total"], "memory of this machine"),
        (found["card_memory"], found["card_total"], "card's memory"),
    ):
        if used and total and used > 0.9 * total:
            said.append(f"it takes {used / total:.0%} of the {what}")
    for arm, epochs in found["epochs"].items():
        if epochs > MANY_EPOCHS and rules.arms[arm].max_epochs is None:
            said.append(f"arm {arm} goes by {epochs:.3g} times: more text, a cap, or max_epochs would help")
    if found["device"] == "cpu" and found["cuda"]["usable"]:
        said.append("there is a usable card, and this run is pinned to the CPU")
    return said


def lines(found: dict[str, Any], settings: config.RunConfig) -> list[str]:
    """The same for people."""
    disk, seconds, reach, cuda = found["disk"], found["seconds"], found["reach"], found["cuda"]
    step = 1 / found["steps_per_second"]
    left = f"{found['max_steps'] - found['done']:,} steps"
    threads = f", {output.counted(found['threads'], 'thread')}" if found["device"] == "cpu" else ""
    rows = [
        ("device", f"{found['device']} in {found['precision']}{threads}, {_hardware(found)}"),
        ("cuda", _cuda(cuda)),
        ("speed", f"{_rate(found['steps_per_second'])}, {found['tokens_per_second']:,.0f} tokens/s, all included"),
        ("time", f"{output.span(seconds['total'])} for {left}: {_parts(seconds)}"),
        ("memory", f"{output.size(found['memory'])} of {output.size(found['memory_total'])}"),
        ("disk", f"{disk['kept_count']} checkpoints of {output.size(disk['checkpoint'])} are kept at the end: "
                 f"{output.size(disk['kept'])} (and {output.size(disk['history'])} of history); "
                 f"{output.size(disk['free'])} are free"),
        ("writes", f"{output.size(disk['a_day'])} a day"),
        ("reach", f"every checkpoint of the last {reach['all']:,} steps ({output.span(reach['all'] * step)}), one in "
                  f"{reach['tenths_apart']:,} steps back to {reach['tenths']:,} "
                  f"({output.span(reach['tenths'] * step)}), one in {reach['for_ever_apart']:,} for ever"),
        *(("epochs", f"{arm}: {epochs:.3g}") for arm, epochs in found["epochs"].items()),
        *(("warning", warning) for warning in found["warnings"]),
        ("tried", f"{found['tried_steps']} steps"),
    ]  # fmt: skip
    if found["card_memory"]:
        row = ("", f"{output.size(found['card_memory'])} of {output.size(found['card_total'])} on the card")
        rows.insert(5, row)
    return [f"{name:<9}{text}" for name, text in rows]


def _hardware(found: dict[str, Any]) -> str:
    if found["device"] == "cpu" or not found["cuda"]["cards"]:
        return str(found["cpu"])
    return str(found["cuda"]["cards"][int(found["device"].partition(":")[2] or 0)]["name"])


def _cuda(cuda: dict[str, Any]) -> str:
    if not cuda["usable"]:
        return f"not usable: {cuda['why']}"
    cards = ", ".join(f"{card['name']} ({output.size(card['memory'])}, {card['capability']})" for card in cuda["cards"])
    return f"{cards}; torch {cuda['torch']} for CUDA {cuda['built_for']}; {cuda['driver']}"


def _rate(steps_per_second: float) -> str:
    return f"{steps_per_second:.3g} steps/s" if steps_per_second >= 0.1 else f"{1 / steps_per_second:.3g} s a step"


def _parts(seconds: dict[str, float]) -> str:
    names = {"steps": "steps", "checkpoints": "audits and checkpoints", "probes": "probes", "start": "start"}
    return ", ".join(f"{text} {output.span(seconds[name])}" for name, text in names.items())
