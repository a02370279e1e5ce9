"""From a run directory to a loop that is ready to train: lock, files, device, state, in that order.

Promises that a second trainer changes nothing, that a checkpoint that cannot be used is named and set aside and never
deleted, and that whatever changes the bits of a run stands in its history. Writes `train.lock`, `train.pid` and the
start event.
"""

from __future__ import annotations

import gc
import os
from typing import Any

import torch

import andrea_train
from andrea_corpus.order import stream_seed
from andrea_corpus.prepare import opened
from andrea_corpus.tokenizer import load as load_tokenizer
from andrea_rundir import checkpoint, config, filesystem, policy, publish
from andrea_rundir.events import EventLog
from andrea_rundir.faults import EXIT_CONFIG, EXIT_OK, Fault, Halt, Refused
from andrea_rundir.lock import Lock, remove_pidfile, write_pidfile
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan
from andrea_service import identity, journal
from andrea_service.notify import Heartbeat, Notifier
from andrea_service.signals import Signals
from andrea_train import device as devices
from andrea_train import model
from andrea_train.audit import Audit
from andrea_train.console import Console
from andrea_train.feed import Diet, Feed
from andrea_train.guard import Guard
from andrea_train.loop import Loop, Outside, Owed
from andrea_train.optimizer import AdamW
from andrea_train.probe import Probe
from andrea_train.resume import Record, record
from andrea_train.saver import Saver
from andrea_train.state import Staging, State


def train(run: RunDir, signals: Signals, until: int | None) -> int:
    """Hold the run's lock and train it; the exit code."""
    if not run.run_toml.exists():
        raise Refused(
            "no run here",
            where=str(run.root),
            expected="a directory with a run.toml",
            todo="`andrea init` makes one",
        )
    filesystem.refuse_network(run.root)
    settings = config.load(run.run_toml)
    with Lock.acquire(run.train_lock, identity.me(settings.run.id)):
        publish.sweep(run.root)
        write_pidfile(run.train_pid, os.getpid())
        events = EventLog(run.events)
        try:
            return _train(run, settings, events, signals, until)
        except Fault as fault:
            if fault.exit_code == EXIT_CONFIG:
                step = fault.step if isinstance(fault, Halt) else max(run.checkpoints(), default=0)
                events.append("halt", step=step, reason=fault.what)
                events.sync()
            raise
        finally:
            events.close()
            remove_pidfile(run.train_pid, os.getpid())


def _train(run: RunDir, settings: config.RunConfig, events: EventLog, signals: Signals, until: int | None) -> int:
    notifier = Notifier()
    log = journal.setup(settings.run.name)
    total = settings.optimizer.max_steps
    last = total if until is None else min(until, total)
    outside = Outside(signals, notifier, Heartbeat(notifier), Console(total, log, notifier), log)

    def waiting(what: str) -> None:
        notifier.extend(60)
        notifier.status(what)
        log.warning("%s", what, extra={"event": "warning"})

    device = devices.wait_for(settings.run.device, waiting, signals.stop_wanted.is_set)
    if device is None:
        notifier.ready("stopped before the first step")
        events.append("stop", step=max(run.checkpoints(), default=0), reason=signals.stop_reason)
        events.sync()
        return EXIT_OK
    devices.settle(settings.run)
    loop, owed = _assemble(run, settings, events, outside, device)
    gc.collect()
    gc.freeze()
    gc.disable()  # a full collection stalls the loop for half a second, and nothing here makes cycles
    try:
        if loop.published < 0:
            loop.first_checkpoint()
        return loop.run(last, "finished" if last == total else "until-step", owed)
    finally:
        loop.saver.close()


def _assemble(
    run: RunDir, settings: config.RunConfig, events: EventLog, outside: Outside, device: torch.device
) -> tuple[Loop, Owed]:
    shape = settings.shape
    policy_text = run.policy_toml.read_text(encoding="utf-8")
    rules = policy.parse(policy_text, str(run.policy_toml), run.root)
    rules.check_rounds(settings.round_steps)
    shards = opened(run, policy_text)
    tokenizer = load_tokenizer(run.data / "tokenizer.json")
    state = State(shape, device)
    staging = Staging(shape.n_params, pinned=device.type == "cuda")
    chosen = checkpoint.choose(run, staging.image, n_params=shape.n_params)
    if chosen is None:
        state.w.copy_(model.initial(shape, stream_seed(settings.run.seed, "weights", 0)))
    else:
        staging.restore(state)
    past = record(run.events, state.step)
    _tell_start(settings, events, outside, device, state.step, past)
    if chosen is not None:
        _tell_choice(events, outside, chosen, past)
    saver = Saver(run, staging, events, settings.checkpoint)
    lengths = tokenizer.byte_lengths()
    batch = settings.optimizer.micro_batch_size
    loop = Loop(
        config=settings,
        device=device,
        state=state,
        staging=staging,
        optimizer=AdamW(state, shape, settings.optimizer),
        losses=torch.compile(model.losses, dynamic=False) if settings.run.compile else model.losses,
        saver=saver,
        events=events,
        guard=_guard(past, settings),
        audit=Audit.over(shards, tokenizer, settings.samples, context=shape.context, seed=settings.run.seed),
        probe=Probe.over(
            shards,
            {arm: rules.arms[arm].prior for arm in rules.arms},
            lengths,
            context=shape.context,
            batch_size=batch,
        ),
        byte_lengths=lengths,
        outside=outside,
        published=-1 if chosen is None else state.step,
        digest=None if chosen is None else chosen.digest,
    )
    snapshot = past.snapshot or {}
    current = snapshot.get("round")
    loop.feed = Feed(
        Diet(
            policy=rules,
            policy_id=policy.policy_id(policy_text, 0),
            shards=shards,
            seed=settings.run.seed,
            context=shape.context,
            batch_size=settings.optimizer.batch_size,
            round_steps=settings.round_steps,
        ),
        cursors=snapshot.get("cursors", {}),
        credits=snapshot.get("credits", {}),
        current=RoundPlan.from_json(current) if current else None,
        recorded=past.rounds,
        announce=loop.announce,
    )
    probed = state.step % settings.probe.every == 0
    owed = Owed(audit=past.audit is None, probe=past.probe is None and probed) if chosen is not None else Owed()
    return loop, owed


def _guard(past: Record, settings: config.RunConfig) -> Guard:
    """The guard as it stood at the checkpoint, with the looks that were taken at it since."""
    guard = Guard.from_json(past.snapshot["guard"]) if past.snapshot else Guard()
    if past.probe is not None and past.probe["mean"] is not None:
        guard.probe(past.probe["step"], past.probe["mean"])
    if past.audit is not None:
        counted = past.audit["step"] % settings.checkpoint.every == 0
        guard.audit(alarm=past.audit["alarm"], counted=counted)
    if past.halted:
        guard.forgive()
    return guard


def _tell_start(
    settings: config.RunConfig,
    events: EventLog,
    outside: Outside,
    device: torch.device,
    step: int,
    past: Record,
) -> None:
    """Record this start, and warn of everything that differs from the start before and may change bits."""
    facts: dict[str, Any] = {
        **devices.facts(device),
        "andrea": andrea_train.__name__ and _version(),
        "config": settings.model_dump(mode="json"),
    }
    events.append("start", step=step, attempt=past.attempts + 1, furthest=past.furthest, pid=os.getpid(), **facts)
    if past.start is None:
        return
    for name, value in facts.items():
        if past.start.get(name) != value:
            detail = f"{name} was {past.start.get(name)}, is {value}"
            events.append("warning", step=step, what="changed since the last start", detail=detail)
            outside.log.warning(
                "changed since the last start, the bits may differ: %s", name, extra={"event": "warning"}
            )


def _tell_choice(events: EventLog, outside: Outside, chosen: checkpoint.Choice, past: Record) -> None:
    """Name every newer file that was passed over, set it aside, and say where the run goes on."""
    log = outside.log
    for passed in chosen.passed:
        aside = checkpoint.set_aside(passed.path)
        detail = f"{passed.path.name}: {passed.reason}; set aside as {aside.name}"
        events.append("warning", step=chosen.step, what="checkpoint passed over", detail=detail)
        log.warning("checkpoint passed over: %s", detail, extra={"event": "passed-over", "step": chosen.step})
    if not chosen.has_digest_line:
        detail = f"{chosen.path.name} has no line in SHA256SUMS; it is used, unverified by digest"
        events.append("warning", step=chosen.step, what="no digest line", detail=detail)
        log.warning("%s", detail, extra={"event": "warning", "step": chosen.step})
    if past.snapshot is None:
        detail = f"no events speak of step {chosen.step}: data order and guard start afresh"
        events.append("warning", step=chosen.step, what="no history", detail=detail)
        log.warning("%s", detail, extra={"event": "warning", "step": chosen.step})
    log.info("goes on from %s", chosen.path.name, extra={"event": "resume", "step": chosen.step})


def _version() -> str:
    from importlib.metadata import version

    return version("andrea-train")
