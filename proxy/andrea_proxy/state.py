"""The curriculum's state on disk: a cache of the fold, never the truth.

Promises that it is used only where it is of this run, this policy, these shards and this very history; whatever else
is found is folded anew, and arms it carried that are not in the policy are listed as retired and count for nothing.
Writes `.state.json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from andrea_corpus.rounds import after
from andrea_proxy.fold import Fold
from andrea_proxy.policies import Policies
from andrea_rundir import planfile, sidecars
from andrea_rundir.faults import BadConfig
from andrea_rundir.lossfile import LossFile, Mark
from andrea_rundir.names import RunDir
from andrea_rundir.plan import SHARE_UNIT, RoundPlan, round_of

Content = dict[str, Any]


@dataclass
class Found:
    """What `.state.json` was good for. `fold` is None when history has to be folded anew; `problem` says why."""

    fold: Fold | None = None
    size: int = 0
    """Bytes of `.loss.json` that are in the fold."""
    position: tuple[int, int] = (0, 0)
    """Where the events go on that the fold has not seen."""
    problem: str = ""
    carried: list[Content] = field(default_factory=list)
    """Arms that the file carried: name, fingerprint, weight."""
    retired: list[Content] = field(default_factory=list)
    """What it listed as retired already, and no pivot dropped."""


def read(run: RunDir) -> tuple[Content | None, str]:
    """The file's content; None when there is none that can be used, and why: it is kept aside then."""
    try:
        return sidecars.load(run.state), ""
    except sidecars.Unusable as why:
        aside = sidecars.set_aside(run.state, why)
        return None, f"{why}; kept as {aside.name}"


def vouched(content: Content | None) -> Mark | None:
    """What of `.loss.json` the file says was whole and durable, and folded."""
    match content:
        case {"history": {"bytes": int(size), "digest": str(digest)}} if size > 0:
            return Mark(size, digest)
    return None


def restore(content: Content, loss: LossFile, policies: Policies, *, run_id: str, seed: int, round_steps: int) -> Found:
    """The fold that the content caches, if it is of this history: `loss` was opened with what it vouches for."""
    carried = _carried(content)
    try:
        fold = Fold.from_state(content["fold"], policies, seed=seed, round_steps=round_steps)
        position = (int(content["events"]["segment"]), int(content["events"]["offset"]))
        arms = {arm: figures["fingerprint"] for arm, figures in content["arms"].items()}
        retired = [arm for arm in content["retired"] if "after" not in arm]  # the others are in the fold
    except (KeyError, TypeError, ValueError, AttributeError, BadConfig) as error:
        what = error.what if isinstance(error, BadConfig) else repr(error)
        return Found(problem=f"it cannot be read as this run's: {what}", carried=carried)
    problem = ""
    if content.get("run") != run_id:
        problem = f"it is of run {content.get('run')!r}"
    elif arms != dict(fold.regime.arms):
        problem = "its arms are not those of the policy"
    elif not loss.believed:
        problem = "the history it was folded from is not this one"
    if problem:
        return Found(problem=problem, carried=carried)
    return Found(fold, content["history"]["bytes"], position, retired=retired)


def zombies(found: Found, fold: Fold) -> list[Content]:
    """The carried arms that are not in the policy: they never get a pull and count for nothing."""
    alive = set(fold.regime.arms.items())
    return [arm for arm in found.carried if (arm["arm"], arm["fingerprint"]) not in alive]


def _carried(content: Content) -> list[Content]:
    arms = content.get("arms")
    if isinstance(arms, list):
        arms = {str(figures.get("arm", figures.get("name"))): figures for figures in arms if isinstance(figures, dict)}
    if not isinstance(arms, dict):
        return []
    return [
        {
            "arm": name,
            "fingerprint": figures.get("fingerprint") if isinstance(figures, dict) else None,
            "weight": figures.get("weight") if isinstance(figures, dict) else None,
        }
        for name, figures in sorted(arms.items())
    ]


def render(
    run: RunDir, run_id: str, fold: Fold, plan: RoundPlan | None, batch_size: int, retired: list[Content]
) -> Content:
    """What the file says of the fold; `plan` is the line of the round of its last step."""
    step, regime = fold.step, fold.regime
    phase = regime.rules.limits(max(step, 1))
    begun = max([regime.start, *(p.until_step for p in regime.rules.phases if p.until_step and p.until_step < step)])
    credit = dict(plan.credits) if plan is not None else {}
    if plan is not None and plan.first <= step:
        dealt = sum(plan.steps[0].values()) if plan.steps else batch_size  # run.toml may have changed since
        credit = dict(after(plan, dealt, until=step).credits)
    weights = fold.weights.get(plan.round, phase.priors) if plan is not None else phase.priors
    shares = plan.shares if plan is not None else {}
    arms = {
        arm: {
            "fingerprint": fingerprint,
            **fold.learner.figures(arm),
            "share": shares.get(arm, 0) / SHARE_UNIT,
            "weight": weights.get(arm, 0.0),
            "credit": credit.get(arm, 0) / SHARE_UNIT,
            "floor": phase.floors.get(arm, 0.0),
            "cap": phase.caps.get(arm, 0.0),
            "epochs": fold.epochs(arm),
            "cursor": fold.cursors[arm],
        }
        for arm, fingerprint in sorted(regime.arms.items())
    }
    return {
        "run": run_id,
        "policy": regime.id,
        "learner": regime.rules.learner,
        "step": step,
        "phase": {"name": phase.phase, "steps": step - begun},
        "arms": arms,
        "retired": [*fold.retired, *retired],
        "fold": fold.to_state(),
    }


def line_of(run: RunDir, step: int, round_steps: int) -> RoundPlan | None:
    """The line of the round of a step; None before the first step, and where the plan has none."""
    line = planfile.line_of(run.plan, round_of(step, round_steps)) if step else None
    return line.plan if line is not None else None


def save(run: RunDir, content: Content, loss: LossFile, position: tuple[int, int]) -> None:
    """Write it, keyed by the history on disk, which must be durable. OSError leaves the old one."""
    mark = loss.mark
    history = {"entries": loss.entries, "bytes": mark.size, "digest": mark.digest}
    where = {"segment": position[0], "offset": position[1]}
    sidecars.save(run.state, {**content, "history": history, "events": where})
