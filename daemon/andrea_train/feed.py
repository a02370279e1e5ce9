"""The feed: which windows of which arms step s learns from, as a pure function of plan, cursors and credits.

Promises that the c-th pull of an arm is always the same window, that a round which was recorded as a fallback is
replayed as recorded, and that a new fallback is durable before its first step. Reads shards; writes no file (the
loop records what it announces).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from andrea_corpus.dealer import Exhausted, cursor_limit, deal
from andrea_corpus.order import window_of
from andrea_corpus.projection import cap_units, project, to_units
from andrea_corpus.shards import Shard
from andrea_rundir.plan import RoundPlan, round_of, round_steps
from andrea_rundir.policy import Policy


@dataclass(frozen=True)
class Batch:
    """One step's sequences, int64 `[batch, T+1]`, ordered by arm name, then cursor; `pulls` says how many an arm."""

    windows: NDArray[np.int64]
    pulls: dict[str, int]


@dataclass(frozen=True)
class Diet:
    """What never changes while a policy is in force."""

    policy: Policy
    policy_id: str
    shards: Mapping[str, Shard]
    seed: int
    context: int
    batch_size: int
    round_steps: int

    def windows(self, arm: str) -> int:
        """How many windows one epoch of an arm has."""
        return self.shards[arm].n_windows(self.context)


class Feed:
    """Deals batches, step by step. `cursors` and `credits` are the only state."""

    def __init__(
        self,
        diet: Diet,
        *,
        cursors: Mapping[str, int],
        credits: Mapping[str, int],  # noqa: A002 - the field's own word
        current: RoundPlan | None,
        recorded: Mapping[int, RoundPlan],
        announce: Callable[[RoundPlan, str], None],
    ) -> None:
        self._diet = diet
        self._recorded = recorded
        self._announce = announce
        self.cursors = {arm: cursors.get(arm, 0) for arm in sorted(diet.policy.arms)}
        self.credits = {arm: credits.get(arm, 0) for arm in sorted(diet.policy.arms)}
        self.round = current

    def batch(self, step: int) -> Batch:
        """The batch of `step`; to be called for consecutive steps. Raises the dealer's Exhausted."""
        plan = self._plan(step)
        dealt = deal(plan.shares, self.cursors, self.credits, plan.limits, self._diet.batch_size, caps=plan.caps)
        rows = [
            self._window(arm, self.cursors[arm] + i) for arm in sorted(dealt.counts) for i in range(dealt.counts[arm])
        ]
        self.cursors, self.credits = dict(dealt.cursors), dict(dealt.credits)
        pulls = {arm: n for arm, n in sorted(dealt.counts.items()) if n}
        return Batch(np.stack(rows).astype(np.int64), pulls)

    def _window(self, arm: str, cursor: int) -> NDArray[np.integer]:
        shard, diet = self._diet.shards[arm], self._diet
        index = window_of(diet.seed, shard.fingerprint, cursor, diet.windows(arm))
        return shard.window(index, diet.context)

    def _plan(self, step: int) -> RoundPlan:
        k = round_of(step, self._diet.round_steps)
        if self.round is not None and self.round.round == k:
            return self.round
        recorded = self._recorded.get(k)
        if recorded is not None and (recorded.cursors, recorded.credits) == (self.cursors, self.credits):
            self.round = recorded
        else:
            self.round = self._fallback(k)
            self._announce(self.round, "no plan for this round")
        return self.round

    def _fallback(self, k: int) -> RoundPlan:
        diet, last = self._diet, self.round
        first, final = round_steps(k, diet.round_steps)
        phase = diet.policy.limits(first)
        limits = {arm: cursor_limit(diet.policy.arms[arm].max_epochs, diet.windows(arm)) for arm in phase.arms}
        active = [arm for arm in phase.arms if (n := limits[arm]) is None or self.cursors[arm] < n]
        if not active:
            raise Exhausted("every arm has reached its epoch limit")
        if last is not None and sorted(last.shares) == active:
            shares = dict(last.shares)
        else:
            chosen = project(
                {arm: phase.priors[arm] for arm in active},
                {arm: phase.floors[arm] for arm in active},
                {arm: phase.caps[arm] for arm in active},
            )
            shares = to_units(chosen.shares)
        return RoundPlan(
            round=k,
            first=first,
            last=final,
            policy=diet.policy_id,
            arms={arm: diet.shards[arm].fingerprint for arm in active},
            shares=shares,
            cursors=dict(self.cursors),
            credits=dict(self.credits),
            limits={arm: limits[arm] for arm in active},
            caps=cap_units({arm: phase.caps[arm] for arm in active}),
            steps=None,
        )
