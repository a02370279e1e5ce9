"""What a proxy finds when it starts: the plan as it was left, the policy a run began with, and the fold over history.

Repairs `plan.jsonl` where it is damaged; writes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from andrea_corpus.rounds import Regime, Standing, after
from andrea_proxy.fold import Fold
from andrea_proxy.policies import Policies
from andrea_rundir import entries, planfile, tomlfile
from andrea_rundir.config import RunConfig
from andrea_rundir.entries import Entry
from andrea_rundir.events import read, read_back
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan
from andrea_rundir.planfile import PlanFile
from andrea_rundir.shapes import is_whole


def open_plan(run: RunDir, say: Callable[[str], None]) -> PlanFile:
    """The plan, open for appending. A torn end is cut; a file with lines that cannot be used is set aside and a new
    one begun with the others; either is said."""
    plan = PlanFile(run.plan)
    if plan.torn:
        say(f"plan.jsonl: {plan.torn}")
    try:
        for _ in planfile.read(run.plan):
            pass
    except ValueError as error:
        plan.close()
        aside = planfile.salvage(run.plan)
        say(f"plan.jsonl is damaged ({error}): kept as {aside.name}, its good lines were carried over")
        plan = PlanFile(run.plan)
    return plan


def first_regime(run: RunDir, policies: Policies, standing: Standing | None) -> Regime:
    """The policy that history begins with: that of its first entry, else of the plan, else of the first start that
    got anywhere, else of `policy.toml`. BadConfig when that one cannot be used or is nowhere.
    """
    first = next(entries.read(run.loss), None)
    names = [first["policy"]] if first is not None else []
    if standing is not None:
        names.append(standing.policy)
    if not names or not policies.knows(names[0]):
        trained = False
        for event in read_back(run.events):
            trained = trained or event["event"] in ("step", "fallback")
            if event["event"] == "start" and (begun := event.get("policy")):
                policies.learn(begun["id"], begun["text"], begun["arms"])
                if trained and (not names or policies.knows(names[0])):
                    names.append(begun["id"])
                    break
    if names:
        return policies.of(names[0])
    text = tomlfile.read(run.policy_toml)
    return policies.prepared(text, str(run.policy_toml), 0)


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


def standing_without_plan(run: RunDir, batch_size: int) -> Standing | None:
    """Where the round leaves the run that the newest checkpoint lies in, as the trainer recorded both: from there on
    planning gives again what it gave. None where no round is on record."""
    present = run.checkpoints()
    for event in read_back(run.events):
        if event["event"] == "snapshot" and event["step"] in present and is_whole(event) and event["round"]:
            try:
                return after(RoundPlan.from_json(event["round"]), batch_size)
            except ValueError:  # damaged, or of another batch size: the trainer cannot go on from there either
                continue
    return None


def new_fold(run: RunDir, config: RunConfig, policies: Policies, standing: Standing | None) -> Fold:
    """A fold that has seen nothing of this run's history; `standing` is where the plan ends, if it has begun."""
    regime = first_regime(run, policies, standing)
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
