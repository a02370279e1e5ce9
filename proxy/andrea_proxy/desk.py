"""The desk: what the proxy does for one run, turn by turn: record, fold, plan, pivot, and the sidecars of it all.

Promises that every turn can be broken off by a kill and taken up again, that what a later file relies on is durable
before it, and that a full disk only makes it wait. Writes through its parts: `.loss.json`, `plan.jsonl`,
`.samples.json`, `.state.json`, `archive/` and `policy.toml`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from andrea_corpus.rounds import Regime
from andrea_proxy import state
from andrea_proxy.curriculum import Curriculum, Known
from andrea_proxy.fold import Fold
from andrea_proxy.livefold import LiveFold
from andrea_proxy.past import open_plan
from andrea_proxy.pivot import Pivot
from andrea_proxy.policies import Policies
from andrea_proxy.recorder import Recorder
from andrea_proxy.samples import Samples
from andrea_rundir.config import RunConfig
from andrea_rundir.entries import Entry
from andrea_rundir.events import Tail, starts
from andrea_rundir.faults import BadConfig
from andrea_rundir.lossfile import LossFile
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan, round_of

SAVE_SECONDS = 1.0
"""Between two writings of what is only a cache."""


class Desk:
    """All parts of a proxy at work. `turn` is called again and again; `close` at the end."""

    def __init__(
        self, run: RunDir, config: RunConfig, log: logging.Logger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Opens and repairs everything; BadConfig when the policy in force cannot be used or found."""
        self.run, self.config = run, config
        self._log, self._clock = log, clock
        self._size = config.round_steps
        self._told: dict[str, str] = {}
        self._fallbacks: list[tuple[RoundPlan, bool]] = []
        self._unfolded: list[Entry] = []
        """Entries that are written, and not in the fold yet."""
        self._saved, self._synced = clock(), -1
        self.started: dict[str, Any] | None = None
        """The newest start event."""
        self.round_seconds = math.inf
        """How long a round takes, by the newest step."""
        cache = state.read(run)
        self._loss = LossFile(run.loss, state.vouched(cache[0]))
        with ExitStack() as opened:
            opened.callback(self._loss.let_go)
            self._plan = open_plan(run, self.say)
            opened.callback(self._plan.close)
            self._begin(cache)
            opened.pop_all()

    def _begin(self, cache: tuple[state.Content | None, str]) -> None:
        """All that is read of a run before the first turn."""
        run, config = self.run, self.config
        self._recorder = Recorder(self._loss)
        self._policies = Policies(run, context=config.shape.context, round_steps=self._size)
        self.curriculum = Curriculum(self._plan, self._policies, config)
        self._live = LiveFold(run, config, self._policies, self._loss, cache, self.say)
        position = self._live.position
        self._policies.find(self.fold.regime.arms)
        self._tail, self._at = Tail(run.events, position), self.fold.step
        if position[1]:  # past the start event of its segment, which nobody will read again
            begun = [event["step"] for number, event in starts(run.events) if number == position[0]]
            self._recorder.resume(max([self.fold.step, *begun]))
        self._samples = Samples(run, config.run.id, self.fold.regime.id)
        self._pivot = Pivot(run, self._policies, config.run.id, lambda text, step: self.say(text, step, "pivot"))
        self._edited = self._differs = False

    # What is told.

    def say(self, text: str, step: int = 0, event: str = "warning") -> None:
        """One line in the journal."""
        level = logging.WARNING if event == "warning" else logging.INFO
        self._log.log(level, "%s", text, extra={"event": event, "step": step})

    def say_once(self, about: str, text: str) -> None:
        """A line when what is to be said about something has changed; "" says nothing."""
        if self._told.get(about, "") != text:
            self._told[about] = text
            if text:
                self.say(text, self.fold.step)

    @property
    def fold(self) -> Fold:
        """All that is recorded, folded."""
        return self._live.now

    @property
    def line(self) -> str:
        """The status in a line."""
        standing = self.curriculum.standing
        planned = f"planned to step {standing.step}" if standing is not None else "waits for the trainer"
        return f"step {self.fold.step}, {planned}, policy {self.fold.regime.id}"

    @property
    def lost(self) -> list[str]:
        """The files that were taken from under it: another desk, which opens and mends everything, must go on."""
        return [file.path.name for file in (self._loss, self._plan) if not file.stands()]

    # A turn.

    def turn(self, alive: Callable[[], bool] = lambda: True) -> None:
        """Take what is new, to its end or while `alive()`; then plan and save. OSError: call again later."""
        self._write()
        while alive() and (events := self._tail.poll()):
            self._take(events)
            self._write()
        if not alive():
            return
        if not self._edited:
            self._pivot.claim_edit(self._in_plan)
            self._edited = True
        self._pivot.claim(self._in_plan)
        self._publish()
        self._finish_pivot()
        self._save(forced=False)

    def close(self) -> None:
        """What is there already is taken, everything is made durable, the files are let go."""
        try:
            self._write()
            self._take(self._tail.poll())
            self._write()
            self._save(forced=True)
            self._loss.sync()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """The files are no longer open; nothing is written. What is not on file another desk finds in the events."""
        self._loss.let_go()
        self._plan.close()

    @property
    def _in_plan(self) -> Regime:
        """The policy of the newest line in force."""
        standing = self.curriculum.standing
        return self.fold.regime if standing is None else self._policies.of(standing.policy)

    def _take(self, events: list[dict[str, Any]]) -> None:
        """Into memory only: what the disk refuses must not be lost. What cannot be used is said and passed over."""
        for event in events:
            try:
                self._heed(event)
            except (KeyError, TypeError, ValueError) as error:
                self.say(f"an event ({event['event']}, {event.get('time')}) cannot be used: {error!r}")
        for problem in self._recorder.take(events):
            self.say(problem)

    def _heed(self, event: dict[str, Any]) -> None:
        """Whatever an event means besides an entry."""
        match event["event"]:
            case "start":
                self.started, self._differs, self._at = event, False, event["step"]
                if policy := event.get("policy"):
                    self._policies.learn(policy["id"], policy["text"], policy["arms"])
            case "step":
                self._at, self.round_seconds = event["step"], event.get("seconds", math.inf) * self._size
            case "fallback":
                plan = RoundPlan.from_json(event)
                self._fallbacks.append((plan, plan.first == self._at + 1))
            case "audit":
                self._samples.take(event)
            case "unreadable":
                self.say(f"a line of the events cannot be read: {event['segment']}, line {event['line']}")

    def _write(self) -> None:
        """Entries to the file, then into the fold; then the rounds that fell back into the plan."""
        self._fold_written()
        while written := self._recorder.flush():
            self._unfolded = written
            self._fold_written()
        if self._fallbacks:
            fresh = self.curriculum.fell_back(self._fallbacks)
            self._fallbacks = []
            if fresh:
                rounds = f"steps {fresh[0].first} to {fresh[-1].last}"
                self.say(f"the trainer had no plan and fell back, {rounds}", fresh[0].first, "fallback")

    def _fold_written(self) -> None:
        """What a refusal meets stays, with all behind it, for the next turn."""
        while self._unfolded:
            self._observe(self._unfolded[0])
            del self._unfolded[0]

    def _observe(self, entry: Entry) -> None:
        if entry["attempt"] > 1:
            if not self._differs:
                self._differs = True
                text = f"step {entry['step']}, and maybe later ones, were trained again and came out differently"
                self.say(text, entry["step"])
            return
        if entry["policy"] != self.fold.regime.id and self.fold.step:
            self._samples.pivot(entry["policy"])
        self._live.observe(entry)

    def _publish(self) -> None:
        """Plan lines that are due. Entries they rest on are made durable first."""
        curriculum, fold = self.curriculum, self.fold
        if curriculum.standing is None and not self._loss.entries and not self._fallbacks:
            curriculum.begin(fold.regime, fold.step)
        lost = curriculum.standing is None and self._loss.entries > 0
        self.say_once("plan", "no line of the plan can be gone on from: the trainer falls back first" if lost else "")
        known = Known(fold.step, self._live.weights, fold.lifetime)
        if self._synced != (synced := round_of(fold.step + 1, self._size)):
            self._loss.sync()
            self._synced = synced
        wanted = self._pivot.wanted(self._in_plan)
        try:
            lines = curriculum.publish(known, wanted)
        except BadConfig as fault:
            if wanted is None:
                raise
            self._pivot.undo(fault)
            lines = curriculum.publish(known, None)
        for line in lines:
            if wanted is not None and line.plan.first == self._policies.of(line.plan.policy).start + 1:
                self.say(f"policy {line.plan.policy} begins with step {line.plan.first}", line.plan.first, "pivot")
        self.say_once("limits", "; ".join(curriculum.notes))

    def _finish_pivot(self) -> None:
        regime = self.fold.regime
        if regime.start == 0:
            return
        last = self._loss.at(regime.start)
        if last is None:  # a history that begins here: there is nothing to archive
            return
        before = self._policies.of(last["policy"])
        self._pivot.archive(before, regime, self._live.ended, self._synced > round_of(regime.start, self._size))

    # The sidecars.

    def _save(self, *, forced: bool) -> None:
        """The caches, once a second. Never ahead of what they were made from."""
        now = self._clock()
        if not forced and now - self._saved < SAVE_SECONDS:
            return
        self._saved = now
        self._samples.save()
        if not self._recorder.settled or self._fallbacks or self._unfolded:
            return
        self._live.save(self._tail.position)
