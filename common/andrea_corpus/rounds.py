"""One round from both sides: how it is laid out, where it leaves the run, and whether it goes on from where we stand.

Trainer and proxy share this, so that what one plans is what the other deals. Pure; writes nothing. Imports this
package, `andrea_rundir.plan` and `andrea_rundir.policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from andrea_corpus.dealer import Dealt, Exhausted, cursor_limit, deal
from andrea_corpus.projection import cap_units, project, to_units
from andrea_rundir.plan import RoundPlan, policy_start
from andrea_rundir.policy import Policy


@dataclass(frozen=True)
class Regime:
    """A policy in force, with what its arms are made of: fingerprint and windows an epoch of each."""

    id: str
    rules: Policy
    text: str
    arms: Mapping[str, str]
    windows: Mapping[str, int]

    @property
    def start(self) -> int:
        """The step after which it is in force."""
        return policy_start(self.id)

    def limit(self, arm: str) -> int | None:
        """The cursor at which an arm is used up."""
        return cursor_limit(self.rules.arms[arm].max_epochs, self.windows[arm])

    def active(self, step: int, cursors: Mapping[str, int]) -> list[str]:
        """The arms that can be pulled at `step`: those of its phase whose cap lets them and that are not used up."""
        caps = self.rules.limits(step).caps
        open_ = [arm for arm in sorted(caps) if caps[arm] > 0]
        return [arm for arm in open_ if (limit := self.limit(arm)) is None or cursors.get(arm, 0) < limit]


def pulled(arms: Mapping[str, str], cursors: Mapping[str, int]) -> dict[str, int]:
    """How far each fingerprint was pulled, given those of the arms and the arms' cursors."""
    found: dict[str, int] = {}
    for arm, fingerprint in arms.items():
        found[fingerprint] = max(found.get(fingerprint, 0), cursors[arm])
    return found


@dataclass(frozen=True)
class Standing:
    """Where a run stands after `step`: its policy's id and, of all of its arms, fingerprint, cursor and credit."""

    step: int
    policy: str
    arms: Mapping[str, str]
    cursors: Mapping[str, int]
    credits: Mapping[str, int]

    def fresh(self, regime: Regime, lifetime: Mapping[str, int]) -> Standing:
        """The same place under another policy: cursors run on by fingerprint, credits start at zero.

        `lifetime` says how far the fingerprints were pulled that no arm of the old policy has.
        """
        known = {**lifetime, **pulled(self.arms, self.cursors)}
        cursors = {arm: known.get(fingerprint, 0) for arm, fingerprint in sorted(regime.arms.items())}
        return Standing(self.step, regime.id, regime.arms, cursors, dict.fromkeys(sorted(regime.arms), 0))

    def takes(self, plan: RoundPlan) -> bool:
        """Whether `plan` begins exactly here: its first step, cursors and credits; or is a policy's first round.

        Of a new policy's arms those are compared that the old one has too, by fingerprint.
        """
        if plan.first != self.step + 1:
            return False
        if plan.policy == self.policy:
            mine = (dict(self.arms), dict(self.cursors), dict(self.credits))
            return (plan.arms, plan.cursors, plan.credits) == mine
        known = pulled(self.arms, self.cursors)
        return (
            policy_start(plan.policy) == self.step
            and not any(plan.credits.values())
            and all(plan.cursors[arm] == known.get(name, plan.cursors[arm]) for arm, name in plan.arms.items())
        )


def play(plan: RoundPlan, batch_size: int, since: Standing | None = None) -> list[Dealt]:
    """Every batch of the round, or of what is left of it after `since`; fewer where the arms run out.

    Raises ValueError when the plan's own steps are not what dealing gives: another version or batch size made it.
    """
    first = plan.first if since is None else since.step + 1
    cursors = plan.cursors if since is None else since.cursors
    credit = plan.credits if since is None else since.credits
    dealt: list[Dealt] = []
    for step in range(first, plan.last + 1):
        try:
            batch = deal(plan.shares, cursors, credit, plan.limits, batch_size, caps=plan.caps)
        except Exhausted:
            break
        cursors, credit = batch.cursors, batch.credits
        dealt.append(batch)
        if plan.steps is not None and plan.steps[step - plan.first] != batch.counts:
            raise ValueError(
                f"step {step} of the plan is {plan.steps[step - plan.first]}, dealing gives {batch.counts}"
            )
    if plan.steps is not None and len(dealt) < plan.last - first + 1:
        raise ValueError("the plan has more steps than its arms have pulls")
    return dealt


def after(plan: RoundPlan, batch_size: int, until: int | None = None) -> Standing:
    """Where the round leaves the run, or its step `until`; ValueError as `play`."""
    dealt = play(plan, batch_size)
    if until is not None:
        dealt = dealt[: until - plan.first + 1]
    cursors, credit = (dealt[-1].cursors, dealt[-1].credits) if dealt else (plan.cursors, plan.credits)
    return Standing(plan.first + len(dealt) - 1, plan.policy, plan.arms, cursors, credit)


@dataclass(frozen=True)
class Layout:
    """A round, laid out; `scaled` when the caps had to be scaled up together; `end` is where it leaves the run, known
    when its steps were dealt."""

    plan: RoundPlan
    scaled: bool
    end: Standing


def lay_out(
    regime: Regime,
    standing: Standing,
    number: int,
    last: int,
    *,
    weights: Mapping[str, float] | None = None,
    shares: Mapping[str, int] | None = None,
    batch_size: int | None = None,
) -> Layout | None:
    """The round `number`, from the step after `standing` to `last`, under `regime`; None when its arms are used up.

    Shares come from `shares` if those are of exactly the active arms, else from `weights` (the prior where there are
    none) by projection into the phase's limits. With `batch_size` every step is dealt in advance, and `last` is the
    last one that can be.
    """
    first = standing.step + 1
    phase = regime.rules.limits(first)
    active = regime.active(first, standing.cursors)
    if not active:
        return None
    scaled = False
    if shares is None or sorted(shares) != active:
        wanted = phase.priors if weights is None else weights
        chosen = project(
            {arm: wanted[arm] for arm in active},
            {arm: phase.floors[arm] for arm in active},
            {arm: phase.caps[arm] for arm in active},
        )
        shares, scaled = to_units(chosen.shares), chosen.scaled
    plan = RoundPlan(
        round=number,
        first=first,
        last=last,
        policy=regime.id,
        arms=dict(sorted(regime.arms.items())),
        shares=dict(sorted(shares.items())),
        cursors=dict(sorted(standing.cursors.items())),
        credits=dict(sorted(standing.credits.items())),
        limits={arm: regime.limit(arm) for arm in active},
        caps=cap_units({arm: phase.caps[arm] for arm in active}),
        steps=None,
    )
    if batch_size is None:
        return Layout(plan, scaled, standing)
    dealt = play(plan, batch_size)
    if not dealt:
        return None
    steps = [batch.counts for batch in dealt]
    last = first + len(dealt) - 1
    end = Standing(last, regime.id, plan.arms, dealt[-1].cursors, dealt[-1].credits)
    return Layout(RoundPlan(**{**plan.to_json(), "last": last, "steps": steps}), scaled, end)
