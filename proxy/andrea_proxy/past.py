"""What a proxy finds when it starts: the plan as it was left, the policy a run began with, and the fold over history.

Repairs `plan.jsonl` where it is damaged or gone; writes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

from andrea_corpus.rounds import Regime
from andrea_proxy.fold import Fold
from andrea_proxy.policies import Policies
from andrea_rundir import entries, planfile, taken, tomlfile
from andrea_rundir.config import RunConfig
from andrea_rundir.entries import Entry
from andrea_rundir.events import read, read_back
from andrea_rundir.names import RunDir
from andrea_rundir.planfile import PlanFile


def open_plan(run: RunDir, say: Callable[[str], None]) -> PlanFile:
    """The plan, open for appending. A torn end is cut; a file with lines that cannot be used is set aside, a new one
    begun with the others; what is missing of what the trainer took up is put in its place; each is said."""
    plan = PlanFile(run.plan)
    with ExitStack() as opened:
        opened.callback(plan.close)
        if plan.torn:
            say(f"plan.jsonl: {plan.torn}")
        if not _mend(run, say):
            opened.pop_all()
            return plan
    return PlanFile(run.plan)


def _mend(run: RunDir, say: Callable[[str], None]) -> bool:
    """Whether another file had to take the plan's place."""
    damaged = False
    try:
        for _ in planfile.read(run.plan):
            pass
    except ValueError as error:
        damaged = True
        aside = planfile.salvage(run.plan)
        say(f"plan.jsonl is damaged ({error}): kept as {aside.name}, its good lines were carried over")
    if not (damaged or _lacks(run)) or not (begun := taken.lines(run)):
        return damaged
    there = list(planfile.read(run.plan))
    before = [line for line in there if line.plan.round < begun[0].plan.round]
    ahead = [line for line in there if line.plan.round > begun[-1].plan.round]
    planfile.write(run.plan, [*before, *begun, *ahead])
    say(f"plan.jsonl lacked lines: made anew, as the events have it, up to step {begun[-1].plan.last}")
    return True


def _lacks(run: RunDir) -> bool:
    """Whether the round that was begun last has no line; or none has one, though a proxy has served the run."""
    if (number := taken.newest(run)) is not None:
        return planfile.line_of(run.plan, number) is None
    empty = next(planfile.read(run.plan), None) is None
    return empty and next(entries.read(run.loss), None) is not None


def first_regime(run: RunDir, policies: Policies) -> Regime:
    """The policy that history begins with: that of its first entry, else of the plan's first line, else of the start
    that first steps followed, else of `policy.toml`. BadConfig when that one cannot be used or is nowhere.
    """
    if (entry := next(entries.read(run.loss), None)) is not None:
        return policies.of(entry["policy"])
    if (name := _first_planned(run)) is not None:
        return policies.of(name)
    trained = False
    for event in read_back(run.events):
        trained = trained or event["event"] in ("step", "fallback")
        if trained and event["event"] == "start" and (begun := event.get("policy")):
            policies.learn(begun["id"], begun["text"], begun["arms"])
            return policies.of(begun["id"])
    text = tomlfile.read(run.policy_toml)
    return policies.prepared(text, str(run.policy_toml), 0)


def _first_planned(run: RunDir) -> str | None:
    """The policy of the plan's first line that can be used."""
    try:
        return next((line.plan.policy for line in planfile.read(run.plan)), None)
    except (FileNotFoundError, ValueError):
        return None


def first_step(run: RunDir) -> int:
    """How many steps were done before history begins: none, but for weights from elsewhere.

    Without an entry it is what the process that made the first step on record had begun from. Not that step less
    one: after a power cut it may lie behind a hole.
    """
    if (entry := next(entries.read(run.loss), None)) is not None:
        return int(entry["step"]) - 1
    begun = max(run.checkpoints(), default=0)
    for event in read(run.events):
        if event["event"] == "start":
            begun = event["step"]
        elif event["event"] == "step":
            break
    return begun


def new_fold(run: RunDir, config: RunConfig, policies: Policies) -> Fold:
    """A fold that has seen nothing of this run's history."""
    regime = first_regime(run, policies)
    return Fold(policies, regime, seed=config.run.seed, round_steps=config.round_steps, step=first_step(run))


def refold(recorded: Iterable[Entry], fold: Fold, until: int | None = None) -> Fold:
    """Fold the first record of every step, up to step `until`."""
    for entry in recorded:
        if until is not None and entry["step"] > until:
            break
        if entry["attempt"] == 1:
            fold.observe(entry)
    return fold


def weights_since(recorded: Iterable[Entry], fold: Fold, number: int) -> dict[int, dict[str, float]]:
    """The weights of all rounds from `number` on, folded anew."""
    found: dict[int, dict[str, float]] = {}
    for entry in recorded:
        if entry["attempt"] == 1:
            fold.observe(entry)
            found |= {n: weights for n, weights in fold.weights.items() if n >= number}
    return found
