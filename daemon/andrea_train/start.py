"""From a run that is held to a loop that is ready to train: files, device, state, in that order.

Promises that a checkpoint that cannot be used is named and set aside and never deleted, and that whatever changes the
bits of a run stands in its history. Writes the start event and, when the run cannot go on, the halt event.
"""

from __future__ import annotations

import gc
import logging

import torch

from andrea_corpus.order import stream_seed
from andrea_corpus.tokenizer import check_fits
from andrea_corpus.tokenizer import load as load_tokenizer
from andrea_rundir import config, loading, seed
from andrea_rundir.eventlog import EventLog
from andrea_rundir.faults import EXIT_CONFIG, EXIT_OK, Fault, Halt
from andrea_rundir.names import RunDir
from andrea_rundir.plan import round_of
from andrea_rundir.planfile import PlanReader
from andrea_service import journal
from andrea_service.notify import Heartbeat, Notifier
from andrea_service.signals import Signals
from andrea_train import account, card, model
from andrea_train import device as devices
from andrea_train.audit import Audit
from andrea_train.console import Console
from andrea_train.feed import Feed, Terms
from andrea_train.guard import Guard
from andrea_train.larder import Diet, Larder, recipe
from andrea_train.looks import Looks, Owed
from andrea_train.loop import Loop, Stopped
from andrea_train.optimizer import AdamW
from andrea_train.outside import Outside
from andrea_train.patience import Patience
from andrea_train.probe import Probe
from andrea_train.publisher import Publisher
from andrea_train.resume import Record, place, record
from andrea_train.saver import Saver
from andrea_train.state import Staging, State
from andrea_train.stepper import Stepper


def train(run: RunDir, settings: config.RunConfig, signals: Signals, until: int | None) -> int:
    """Train a run whose lock is held; the exit code."""
    log, notifier = journal.setup(settings.run.name), Notifier()
    events = EventLog(run.events)
    try:
        seed.refuse_another(run, settings)
        return _train(run, settings, events, signals, until, log, notifier)
    except Fault as fault:
        if fault.exit_code == EXIT_CONFIG:
            sick = isinstance(fault, Halt)
            step = fault.step if isinstance(fault, Halt) else max(run.checkpoints(), default=0)
            events.append("halt", step=step, reason=fault.what, cause="health" if sick else "setup")
            events.sync()
            text = f"halted after step {step}: {fault.what}"
            notifier.status(text)
            log.error("%s", text, extra={"event": "halt", "step": step})
        raise
    finally:
        events.close()


def _train(
    run: RunDir,
    settings: config.RunConfig,
    events: EventLog,
    signals: Signals,
    until: int | None,
    log: logging.Logger,
    notifier: Notifier,
) -> int:
    total = settings.optimizer.max_steps
    last = total if until is None else min(until, total)
    outside = Outside(signals, notifier, Heartbeat(notifier), Console(run.root, total, log, notifier), log, events)

    def waiting(what: str) -> None:
        notifier.extend(60)
        notifier.status(what)
        log.warning("%s", what, extra={"event": "warning"})

    try:
        device = devices.wait_for(settings.run.device, waiting, signals.stop_wanted)
        if device is None:
            raise Stopped
        devices.settle(settings.run)
        loop, owed = _assemble(run, settings, outside, device)
    except Stopped:
        notifier.ready("stopped before the first step")
        step, reason = max(run.checkpoints(), default=0), signals.stop_reason or ""
        events.append("stop", step=step, reason=reason)
        events.sync()
        outside.console.end(step, reason)
        return EXIT_OK
    gc.collect()
    gc.freeze()
    gc.disable()  # a full collection stalls the loop for half a second, and nothing here makes cycles
    try:
        loop.begin(owed)
        return loop.run(last, "finished" if last == total else "until-step")
    finally:
        loop.publisher.close()


def _assemble(run: RunDir, settings: config.RunConfig, outside: Outside, device: torch.device) -> tuple[Loop, Owed]:
    shape = settings.shape
    tokenizer = load_tokenizer(run.data / "tokenizer.json")
    check_fits(tokenizer, shape.vocab_size, str(run.run_toml))
    state = State(shape, device)
    chosen = loading.choose(run, state.fill, n_params=shape.n_params)
    if chosen is None:
        state.w.copy_(model.initial(shape, stream_seed(settings.run.seed, "weights", 0)))
    else:
        state.step = chosen.step
    past = record(run.events, state.step)
    terms = Terms(settings.run.seed, shape.context, settings.optimizer.batch_size, settings.round_steps)
    here = place(run, past, state.step, round_steps=terms.round_steps, batch_size=terms.batch_size)
    larder = Larder(run, context=shape.context, round_steps=terms.round_steps, hear=lambda: _reading(outside))
    diet = larder.first(here.round, past.policy)
    account.begun(settings, outside, device, state.step, past, diet)
    if chosen is not None:
        account.chosen(outside, chosen, here)
    saver = Saver(run, Staging(shape.n_params, device), outside.events, settings.checkpoint)
    lengths = tokenizer.byte_lengths()

    def make_looks(diet: Diet) -> tuple[Audit, Probe]:
        priors = {arm: rules.prior for arm, rules in diet.regime.rules.arms.items()}
        batch, context = settings.optimizer.micro_batch_size, shape.context
        return (
            Audit.over(diet.shards, tokenizer, settings.samples, context=context, seed=terms.seed),
            Probe.over(diet.shards, priors, lengths, context=context, batch_size=batch),
        )

    guard = _guard(past, settings)
    looks = Looks(settings, guard, outside, make_looks, diet)
    loop = Loop(
        config=settings,
        state=state,
        stepper=Stepper(
            device,
            settings.run.precision,
            state,
            AdamW(state, shape, settings.optimizer),
            torch.compile(model.losses, dynamic=False) if settings.run.compile else model.losses,
            micro_batch=settings.optimizer.micro_batch_size,
            loss_scale=settings.optimizer.loss_scale,
        ),
        publisher=Publisher(state, saver, guard, looks, outside, -1 if chosen is None else state.step),
        guard=guard,
        byte_lengths=lengths,
        outside=outside,
        looks=looks,
        card=card.of(device, outside),
    )
    loop.feed = Feed(
        terms,
        diet,
        cursors=here.cursors,
        credits=here.credits,
        current=here.round,
        recorded=past.rounds,
        plan=PlanReader(run.plan, round_of(state.step + 1, terms.round_steps)),
        patience=Patience(settings.run.plan_wait, loop.idle, tell=outside.waits_for_plan),
        announce=loop.announce,
        take=loop.take,
        serve=lambda line: larder.open(recipe(line, run)),
        adopted=loop.adopt,
    )
    probed = state.step % settings.probe.every == 0
    owed = Owed()
    if chosen is not None:
        owed = Owed(state.step, chosen.digest, past.audit is None, past.probe is None and probed)
    return loop, owed


def _reading(outside: Outside) -> None:
    """Shards are being read through: a bounded wait, which a wish to stop breaks off."""
    outside.notifier.extend(60)
    if outside.stopping():
        raise Stopped


def _guard(past: Record, settings: config.RunConfig) -> Guard:
    """The guard as it stood at the checkpoint, with the looks that were taken at it since."""
    guard = Guard.from_json(past.snapshot["guard"]) if past.snapshot else Guard()
    if past.probe is not None and past.probe["mean"] is not None:
        guard.probe(past.probe["step"], past.probe["mean"])
    if past.audit is not None:
        counted = past.audit["step"] % settings.checkpoint.every == 0
        guard.audit(past.audit["step"], alarm=past.audit["alarm"], counted=counted)
    if past.halted:
        guard.forgive()
    return guard
