"""A trainer without a model: the real feed, the real events, losses made up from arm and cursor. Thousands of steps a
second, in this process, so that schedules of trainer and proxy can be tried by the hundred."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from andrea_corpus.dealer import Exhausted
from andrea_proxy.desk import Desk
from andrea_rundir import config
from andrea_rundir.eventlog import EventLog
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan, round_of
from andrea_rundir.planfile import Line, PlanReader
from andrea_train.feed import Feed, Terms
from andrea_train.larder import Larder, recipe
from andrea_train.resume import place, record
from harness.learning_curves import gauss
from harness.writes import Killed, killed_at

BYTES = 3
"""Of text, a token."""


def loss_of(arm: str, cursor: int) -> float:
    """Nats a token: falls with the arm's pulls, another way for each arm, with noise."""
    depth = 1.0 + sum(map(ord, arm)) % 7 / 3
    return 1.0 + depth * float((1.0 + cursor / 40) ** -0.4) + 0.05 * gauss(arm, cursor)


class DryTrainer:
    """Goes on from the newest checkpoint, as the real one does; one that is dropped without a word is a killed one."""

    def __init__(self, run: RunDir, wait: Callable[[], bool], seconds: float = 0.0) -> None:
        """`wait` is called while there is no plan; False means that patience is at its end. A step is said to take
        `seconds`."""
        self.run, self._settings, self._seconds = run, config.load(run.run_toml), seconds
        settings = self._settings
        self.step = max(run.checkpoints(), default=0)
        past = record(run.events, self.step)
        self._terms = Terms(
            settings.run.seed, settings.shape.context, settings.optimizer.batch_size, settings.round_steps
        )
        here = place(run, past, self.step, round_steps=self._terms.round_steps, batch_size=self._terms.batch_size)
        larder = Larder(run, context=settings.shape.context, round_steps=self._terms.round_steps, hear=lambda: None)
        diet = larder.first(here.round, past.policy)
        self._events = EventLog(run.events)
        self.feed = Feed(
            self._terms,
            diet,
            cursors=here.cursors,
            credits=here.credits,
            current=here.round,
            recorded=past.rounds,
            plan=PlanReader(run.plan, round_of(self.step + 1, self._terms.round_steps)),
            patience=_Patience(wait),  # type: ignore[arg-type]
            announce=self._announce,
            take=self._take,
            serve=lambda line: larder.open(recipe(line, run)),
            adopted=lambda diet, kept: None,
        )
        self._events.append(
            "start",
            step=self.step,
            attempt=past.attempts + 1,
            furthest=past.furthest,
            config=settings.model_dump(mode="json"),
            policy=diet.recipe.to_json(),
        )
        if self.step == 0 and not run.checkpoint(0).exists():
            self._checkpoint()

    def train(self, until: int) -> bool:
        """Steps up to `until`; False when the data is exhausted."""
        while self.step < until:
            try:
                self._step()
            except Exhausted:
                return False
        return True

    def stop(self) -> None:
        """A checkpoint where it stands, if there is none, as at SIGTERM."""
        if not self.run.checkpoint(self.step).exists():
            self._checkpoint()

    def _announce(self, plan: RoundPlan, why: str) -> None:
        self._events.append("fallback", **plan.to_json(), reason=why)
        assert self._events.sync()

    def _take(self, line: Line) -> None:
        self._events.append("round", **line.to_json())

    def _step(self) -> None:
        before = dict(self.feed.cursors)
        batch = self.feed.batch(self.step + 1)
        before = before if before.keys() == self.feed.cursors.keys() else {}
        tokens = self._terms.context
        arms: dict[str, list[Any]] = {}
        for arm, pulls in batch.pulls.items():
            cursor = before.get(arm, self.feed.cursors[arm] - pulls)
            losses = [loss_of(arm, cursor + i) for i in range(pulls)]
            arms[arm] = [pulls, sum(losses) / pulls, pulls * tokens * BYTES]
        self.step += 1
        assert self.feed.round is not None
        self._events.append(
            "step",
            step=self.step,
            loss=sum(loss * pulls for pulls, loss, _ in arms.values()) / self._terms.batch_size,
            arms=arms,
            lr=1e-3,
            grad_norm=1.0,
            tokens=self._terms.batch_size * tokens,
            seconds=self._seconds,
            policy=self.feed.round.policy,
            flags=["fallback"] if self.feed.fell_back else [],
            cursors=self.feed.cursors,
            credits=self.feed.credits,
        )
        if self.step % self._settings.checkpoint.every == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        self._events.append(
            "snapshot",
            step=self.step,
            guard={},
            round=self.feed.round.to_json() if self.feed.round else None,
            cursors=self.feed.cursors,
            credits=self.feed.credits,
        )
        self.run.checkpoint(self.step).write_bytes(b"weights after %d" % self.step)
        text = {"prompt": "p", "text": f"t{self.step}", "looped": False, "why": None}
        self._events.append(
            "audit", step=self.step, digest="ab" * 32, looped=0, score=100.0, alarm=False, samples=[text], seconds=0.0
        )


class _Patience:
    def __init__(self, wait: Callable[[], bool]) -> None:
        self.wait = wait


def desk(run: RunDir) -> Desk:
    """A proxy's desk on the run, with a clock by which every turn is a second."""
    return Desk(run, config.load(run.run_toml), logging.getLogger("dry"), clock=iter(range(10**9)).__next__)


def served(proxy: Desk, patient: bool = True) -> Callable[[], bool]:
    """For a trainer that waits for a plan: the proxy has a turn meanwhile; whether it goes on waiting then."""

    def wait() -> bool:
        proxy.turn()
        return patient

    return wait


class Mortal:
    """A proxy that is killed at any of the first `most` writes of a turn, and begun anew at the next one;
    as it is where a file of its own is gone."""

    def __init__(self, run: RunDir, rng: np.random.Generator, most: int) -> None:
        self._run, self._rng, self._most = run, rng, most
        self._desk: Desk | None = None

    def turn(self) -> bool:
        """Always True: whoever waits for it goes on waiting."""
        with killed_at(int(self._rng.integers(1, self._most))):
            try:
                if self._desk is None or self._desk.lost:
                    self._desk = desk(self._run)
                self._desk.turn()
            except Killed:
                self._desk = None
        return True


def any_schedule(
    run: RunDir, rng: np.random.Generator, last: int, *, also: Callable[[int], None] = lambda step: None
) -> None:
    """Steps, turns and ends of either in random order up to step `last`, the proxy killed at any write it makes; the
    trainer never gives up waiting. `also` is called now and then, with the step."""
    proxy = Mortal(run, rng, 60)
    trainer = DryTrainer(run, proxy.turn)
    while trainer.step < last:
        match rng.integers(12):
            case 0:
                trainer = DryTrainer(run, proxy.turn)
            case 1 | 2 | 3:
                proxy.turn()
            case 4:
                also(trainer.step)
            case _:
                trainer.train(min(last, trainer.step + int(rng.integers(1, 8))))
    look(run)


def quiet(run: RunDir, last: int, *, also: Callable[[int], None] = lambda step: None) -> RunDir:
    """Trainer and proxy alternate up to step `last`; nothing happens to either but what `also` does after a step."""
    proxy = desk(run)
    proxy.turn()
    trainer = DryTrainer(run, served(proxy))
    while trainer.step < last and trainer.train(trainer.step + 1):
        also(trainer.step)
        proxy.turn()
    proxy.turn()
    proxy.close()
    return run


def look(run: RunDir) -> None:
    """One life of a proxy with nothing new to see."""
    proxy = desk(run)
    proxy.turn()
    proxy.close()
