"""The feed: which windows of which arms step s learns from, as a pure function of plan, cursors and credits.

Promises that the c-th pull of an arm is always the same window, that what this run recorded of itself is replayed as
recorded, that a published line is taken when it begins exactly where the run stands, and that a fallback is durable
before its first step. Reads `plan.jsonl` and shards; writes no file (the loop records what it announces).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from andrea_corpus.dealer import Dealt, Exhausted
from andrea_corpus.order import window_of
from andrea_corpus.rounds import Standing, lay_out, play
from andrea_rundir.plan import RoundPlan, round_of, round_steps
from andrea_rundir.planfile import Line, PlanReader
from andrea_train.larder import Diet
from andrea_train.patience import Patience


@dataclass(frozen=True)
class Batch:
    """One step's sequences, int64 `[batch, T+1]`, ordered by arm name, then cursor; `pulls` says how many an arm."""

    windows: NDArray[np.int64]
    pulls: dict[str, int]


@dataclass(frozen=True)
class Terms:
    """What never changes while the process lives."""

    seed: int
    context: int
    batch_size: int
    round_steps: int


class Feed:
    """Deals batches, step by step. `cursors`, `credits` and `round` are the only state; `diet` is in force."""

    def __init__(
        self,
        terms: Terms,
        diet: Diet,
        *,
        cursors: Mapping[str, int],
        credits: Mapping[str, int],  # noqa: A002 - the field's own word
        current: RoundPlan | None,
        recorded: Mapping[int, RoundPlan],
        plan: PlanReader,
        patience: Patience,
        announce: Callable[[RoundPlan, str], None],
        take: Callable[[Line], None],
        serve: Callable[[Line], Diet],
        adopted: Callable[[Diet, Collection[str]], None],
    ) -> None:
        """`recorded`: this run's own fallback rounds. `serve` opens the shards of a line's policy; `adopted` hears of
        a new one and which of its arms run on, before its first batch; `announce` returns once a fallback is durable.
        `take` hears of every other round that is begun, before its first batch; with a new policy's text.
        """
        self.diet = diet
        self.cursors = {arm: cursors.get(arm, 0) for arm in sorted(diet.regime.arms)}
        self.credits = {arm: credits.get(arm, 0) for arm in sorted(diet.regime.arms)}
        self.round = current
        self._terms, self._recorded, self._plan, self._patience = terms, dict(recorded), plan, patience
        self._announce, self._take, self._serve, self._adopted = announce, take, serve, adopted
        self._lines: dict[int, list[Line]] = {}
        self._dealt: deque[Dealt] = deque()
        self._ahead: Batch | None = None

    @property
    def fell_back(self) -> bool:
        """Whether the round under way is a fallback."""
        return self.round is not None and self._recorded.get(self.round.round) == self.round

    def batch(self, step: int) -> Batch:
        """The batch of `step`; to be called for consecutive steps. Raises the dealer's Exhausted."""
        if not self._dealt:
            self._begin(step)
        self.prepare()
        batch, dealt = self._ahead, self._dealt.popleft()
        assert batch is not None, "a round that has begun has a batch"
        self._ahead, self.cursors, self.credits = None, dict(dealt.cursors), dict(dealt.credits)
        return batch

    def prepare(self) -> None:
        """Read the next batch of the round under way, if it has one, ahead of its step: the device is at work."""
        if self._ahead is not None or not self._dealt:
            return
        counts = self._dealt[0].counts
        arms = sorted(counts)
        rows = [self._window(arm, self.cursors[arm] + i) for arm in arms for i in range(counts[arm])]
        self._ahead = Batch(np.stack(rows).astype(np.int64), {arm: counts[arm] for arm in arms})

    def _window(self, arm: str, cursor: int) -> NDArray[np.integer]:
        shard = self.diet.shards[arm]
        index = window_of(self._terms.seed, shard.fingerprint, cursor, self.diet.regime.windows[arm])
        return shard.window(index, self._terms.context)

    def _begin(self, step: int) -> None:
        """Deal the round of `step`, or what is left of it on a resume."""
        number = round_of(step, self._terms.round_steps)
        plan = self.round
        if plan is None or plan.round != number or not self._fits(plan, step):
            plan = self._choose(number, step)
        self._dealt.extend(play(plan, self._terms.batch_size, self._standing(step)))
        self.round = plan
        if not self._dealt:
            raise Exhausted("the arms have fewer pulls left than a batch needs")

    def _standing(self, step: int) -> Standing:
        regime = self.diet.regime
        return Standing(step - 1, regime.id, regime.arms, self.cursors, self.credits)

    def _choose(self, number: int, step: int) -> RoundPlan:
        """What this run recorded of the round; else a line that fits; else, when waiting for one is over, a fallback.

        Raises Exhausted when there is no line and nothing to fall back on.
        """
        self._lines = {k: lines for k, lines in self._lines.items() if k >= number}
        recorded = self._recorded.get(number)
        if recorded is not None and recorded.policy == self.diet.regime.id and self._fits(recorded, step):
            self._take(Line(recorded, fallback=True))
            return recorded
        line = self._offered(number, step)
        if line is None:
            own = self._fallback(number, step)
            while line is None and self._patience.wait():
                line = self._offered(number, step)
            if line is None:
                self._recorded[number] = own
                self._announce(own, "no plan for this round")
                return own
        new = line.plan.policy != self.diet.regime.id
        if new:
            self._adopt(line)
        self._take(replace(line, policy_text=self.diet.regime.text if new else None))
        return line.plan

    def _offered(self, number: int, step: int) -> Line | None:
        """The newest usable line of the round."""
        for line in self._plan.poll():
            self._lines.setdefault(line.plan.round, []).append(line)
        return next((line for line in reversed(self._lines.get(number, ())) if self._fits(line.plan, step)), None)

    def _fits(self, plan: RoundPlan, step: int) -> bool:
        """Whether the plan, its first steps dealt if we are inside it, stands where the run does."""
        here, ahead = self._standing(step), step - plan.first
        if ahead < 0 or step > plan.last or plan.last > round_steps(plan.round, self._terms.round_steps)[1]:
            return False
        try:
            dealt = play(plan, self._terms.batch_size)
        except (ValueError, KeyError):  # made for another batch size, or by another version
            return False
        if ahead == 0:
            return bool(dealt) and here.takes(plan)
        if len(dealt) <= ahead:
            return False
        return here == Standing(step - 1, plan.policy, plan.arms, dealt[ahead - 1].cursors, dealt[ahead - 1].credits)

    def _adopt(self, line: Line) -> None:
        """Go over to the policy of a line, which begins here."""
        before, self.diet = self.diet, self._serve(line)
        self.cursors, self.credits = dict(line.plan.cursors), dict(line.plan.credits)
        kept = dict(before.regime.arms).items() & dict(self.diet.regime.arms).items()
        self._adopted(self.diet, {arm for arm, _ in kept})

    def _fallback(self, number: int, step: int) -> RoundPlan:
        """The same dealer goes on: the last round's shares while the active arms are the same, else the prior's."""
        last = self.round.shares if self.round is not None else None
        _, final = round_steps(number, self._terms.round_steps)
        laid = lay_out(self.diet.regime, self._standing(step), number, final, shares=last)
        if laid is None or not play(laid.plan, self._terms.batch_size):
            raise Exhausted("the arms have fewer pulls left than a batch needs")
        return laid.plan
