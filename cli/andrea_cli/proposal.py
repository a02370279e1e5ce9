"""What a pivot would change: the policy that is asked for beside the one in force, judged as the proxy will judge it.

Reads only. Imports the proxy's own reading of plan and policies, so that what is accepted here is not refused there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from andrea_cli import facts
from andrea_corpus.ledger import TODO
from andrea_corpus.rounds import Regime, Standing, lay_out
from andrea_proxy.curriculum import boundary, follow
from andrea_proxy.past import first_regime, first_step
from andrea_proxy.policies import Policies
from andrea_rundir import policy, sidecars, tomlfile
from andrea_rundir.config import RunConfig
from andrea_rundir.faults import BadConfig, Refused, Usage
from andrea_rundir.names import RunDir
from andrea_rundir.plan import SHARE_UNIT, RoundPlan, round_of, round_steps

Shares = Mapping[str, float]


@dataclass(frozen=True)
class Wish:
    """What was typed: a whole policy, or other limits, by arm, for the one in force."""

    file: Path | None
    caps: Shares
    floors: Shares


@dataclass(frozen=True)
class Row:
    """One arm, limits and shares of pulls before and after; None where it is not in the policy or not pulled."""

    arm: str
    source: str
    floor: float | None
    new_floor: float | None
    cap: float | None
    new_cap: float | None
    share: float | None
    new_share: float | None


@dataclass(frozen=True)
class Proposal:
    """A pivot that could be asked for now. `text` is the policy's; it would take effect after `step`."""

    text: str
    step: int
    before: Regime
    after: Regime
    rows: list[Row]


@dataclass(frozen=True)
class Inforce:
    """The policy in force (of the newest line of the plan, else of the run's beginning), and how far is planned."""

    regime: Regime
    standing: Standing
    newest: RoundPlan | None
    next_boundary: int
    """The step after which a pivot would take effect that is claimed now."""


def in_force(run: RunDir, settings: RunConfig) -> tuple[Inforce, Policies]:
    """Read it; BadConfig when the plan is damaged or the policy is nowhere."""
    size, every = settings.round_steps, settings.checkpoint.every
    try:
        policies = Policies(run, context=settings.shape.context, round_steps=size)
        standing, rounds = follow(run.plan, size, settings.optimizer.batch_size)
    except ValueError as error:
        raise BadConfig(
            "the plan cannot be read",
            where=str(run.plan),
            found=str(error),
            todo="restart andrea-proxy, which mends it",
        ) from None
    regime = first_regime(run, policies) if standing is None else policies.of(standing.policy)
    if standing is None:
        zero = dict.fromkeys(sorted(regime.arms), 0)
        standing = Standing(first_step(run), regime.id, regime.arms, zero, zero)
    planned, done = standing.step, facts.recent(run).step or 0
    if done > planned:  # it goes on without a plan: rounds that it begins are finished
        planned = round_steps(round_of(done, size), size)[1]
    newest = rounds[max(rounds)] if rounds else None
    return Inforce(regime, standing, newest, boundary(planned, every)), policies


def propose(run: RunDir, settings: RunConfig, now: Inforce, policies: Policies, wish: Wish) -> Proposal:
    """Check a wish. Usage, BadConfig or Refused say what is wrong with it; nothing is changed."""
    step = now.next_boundary
    if step >= settings.optimizer.max_steps:
        last = settings.optimizer.max_steps
        over = (facts.recent(run).step or 0) >= last
        raise Refused(
            "the run is finished" if over else "the run ends before a pivot could take effect",
            where=str(run.root),
            found=f"the next boundary is step {step:,}, the run ends at {last:,}",
            expected="a multiple of [checkpoint] every before the end",
            todo="raise [optimizer] max_steps in run.toml, or fork the run",
        )
    text = _changed(now.regime, wish, step) if wish.file is None else policy.dump(policy.load(wish.file))
    after = _prepared(run, policies, text, wish, step)
    if (after.rules, dict(after.arms)) == (now.regime.rules, dict(now.regime.arms)):
        raise Refused(
            "this policy is in force already", where=str(wish.file or run.root), found=f"policy {now.regime.id}"
        )
    there = Standing(step, now.regime.id, now.regime.arms, now.standing.cursors, now.standing.credits)
    lifetime = _lifetime(run)
    laid = lay_out(after, there.fresh(after, lifetime), round_of(step + 1, settings.round_steps), step + 1)
    if laid is None:
        raise Refused(
            "the arms of this policy are used up: there would be nothing to train on",
            where=str(wish.file or run.root),
            found=", ".join(f"{arm}: max_epochs {about.max_epochs}" for arm, about in after.rules.arms.items()),
            expected="an arm that may still be pulled",
        )
    shares = now.newest.shares if now.newest is not None else {}
    sources = {arm: _source(arm, now.regime.arms, after.arms, lifetime) for arm in {*now.regime.arms, *after.arms}}
    rows = _rows(now.regime, after, step + 1, sources, shares, laid.plan.shares)
    return Proposal(text, step, now.regime, after, list(rows))


def _changed(regime: Regime, wish: Wish, step: int) -> str:
    """The text of the policy in force with other limits."""
    arms = dict(regime.rules.arms)
    for key, changes in (("cap", wish.caps), ("floor", wish.floors)):
        for arm, value in changes.items():
            if arm not in arms:
                near = tomlfile.nearest(arm, arms)
                expected = f"did you mean {near}?" if near else "one of " + ", ".join(sorted(arms))
                raise Usage(f"--{key} names no arm of the policy in force", found=arm, expected=expected)
            for phase in regime.rules.phases:
                if arm in getattr(phase, key) and (phase.until_step is None or phase.until_step > step):
                    raise Refused(
                        f"phase {phase.name} has a {key} of its own for arm {arm}: --{key} would not change it",
                        where=f"policy {regime.id}",
                        found=f"{key} {getattr(phase, key)[arm]:g}",
                        todo="write the whole policy to a file and give it as --policy",
                    )
            arms[arm] = arms[arm].model_copy(update={key: value})
    return policy.dump(regime.rules.model_copy(update={"arms": arms}))


def _prepared(run: RunDir, policies: Policies, text: str, wish: Wish, step: int) -> Regime:
    where = str(wish.file) if wish.file is not None else "the policy in force, changed as asked"
    try:
        return policies.prepared(text, where, step)
    except BadConfig as fault:
        if fault.todo == TODO:
            file = f" --policy {wish.file}" if wish.file is not None else ""
            fault.todo = f"run `andrea prepare {run.root}{file}`"
        raise


def _lifetime(run: RunDir) -> dict[str, int]:
    """How far shards were pulled that no arm of the policy in force has, as far as the state says."""
    try:
        state: dict[str, Any] = sidecars.load(run.state) or {}
        return {str(name): int(count) for name, count in state["fold"]["lifetime"].items()}
    except (sidecars.Unusable, KeyError, TypeError, ValueError, AttributeError):
        return {}


def _rows(
    before: Regime,
    after: Regime,
    first: int,
    sources: Mapping[str, str],
    shares: Mapping[str, int],
    planned: Mapping[str, int],
) -> Iterator[Row]:
    """Limits as they would hold at step `first`, without the pivot and with it."""
    old, new = before.rules.limits(first), after.rules.limits(first)
    for arm in sorted(sources):
        yield Row(
            arm,
            sources[arm],
            old.floors.get(arm),
            new.floors.get(arm),
            old.caps.get(arm),
            new.caps.get(arm),
            shares[arm] / SHARE_UNIT if arm in shares else None,
            planned[arm] / SHARE_UNIT if arm in planned else None,
        )


def _source(arm: str, before: Mapping[str, str], after: Mapping[str, str], lifetime: Mapping[str, int]) -> str:
    """What becomes of an arm's text. One that is back runs on where it was, one that changed its name too."""
    if arm not in after:
        heirs = sorted(name for name, shard in after.items() if shard == before[arm])
        return f"now {heirs[0]}" if heirs else "dropped"
    if before.get(arm) == after[arm]:
        return "same"
    names = sorted(name for name, shard in before.items() if shard == after[arm])
    if names:
        return f"was {names[0]}"
    return "back" if after[arm] in lifetime else "replaced" if arm in before else "new"
