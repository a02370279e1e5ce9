"""The larder: which policies this run is fed by, and the shards of the one in force.

Promises that once the plan has a line, policies and shards are those it names, whatever `policy.toml` and
`sources.json` have become; before that those of the first start, and only for a run that never took a step those of
`policy.toml`. Reads `plan.jsonl`, `policy.toml`, `events/` and `data/`; writes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from andrea_corpus.ledger import fingerprints
from andrea_corpus.rounds import Regime
from andrea_corpus.shards import Shard, open_shard
from andrea_corpus.tokenizer import load as load_tokenizer
from andrea_rundir import planfile, policy, taken
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.plan import RoundPlan


@dataclass(frozen=True)
class Recipe:
    """A policy as history has it: id, text, and the fingerprint of each arm."""

    id: str
    text: str
    arms: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """For the start event."""
        return {"id": self.id, "text": self.text, "arms": dict(self.arms)}


@dataclass(frozen=True)
class Diet:
    """A policy in force, with its shards open."""

    regime: Regime
    shards: Mapping[str, Shard]

    @property
    def recipe(self) -> Recipe:
        """The same without the shards."""
        return Recipe(self.regime.id, self.regime.text, self.regime.arms)


class Larder:
    """Finds recipes and opens their shards, each at most once while it is in use."""

    def __init__(self, run: RunDir, *, context: int, round_steps: int, hear: Callable[[], None]) -> None:
        """`hear` is called while shards are read through; what it raises breaks that off."""
        self._run, self._context, self._round_steps, self._hear = run, context, round_steps, hear
        self._tokenizer = load_tokenizer(run.data / "tokenizer.json").digest
        self._open: dict[str, Shard] = {}

    def first(self, current: RoundPlan | None, started: Mapping[str, Any] | None) -> Diet:
        """What is in force at a start: the policy of the round under way, else the first one of this run.

        `started` is what the newest start event says of its policy. BadConfig when that policy is nowhere, cannot be
        used, or its shards are missing or damaged (naming arm, fingerprint and `andrea prepare RUN`).
        """
        known = {line.plan.policy: _of(line) for line in planfile.first_lines(self._run.plan)}
        begun = Recipe(started["id"], started["text"], started["arms"]) if started else None
        if begun is not None:
            known.setdefault(begun.id, begun)
        if current is not None:
            return self.open(known.get(current.policy) or _taken(self._run, current, "in force at this checkpoint"))
        return self.open(next(iter(known.values()), None) or self._own())

    def open(self, recipe: Recipe) -> Diet:
        """The recipe with its shards, read through once; shards that stay in use are not read again."""
        where = f"policy {recipe.id}"
        rules = policy.parse(recipe.text, where, self._run.root)
        rules.check_rounds(self._round_steps, where)
        shards = {arm: self._open.get(name) or self._shard(arm, name) for arm, name in sorted(recipe.arms.items())}
        self._open = {shard.fingerprint: shard for shard in shards.values()}
        windows = {arm: shard.n_windows(self._context) for arm, shard in shards.items()}
        return Diet(Regime(recipe.id, rules, recipe.text, dict(sorted(recipe.arms.items())), windows), shards)

    def _own(self) -> Recipe:
        """What `policy.toml` and `sources.json` say."""
        path = self._run.policy_toml
        rules = policy.load(path)
        text = path.read_text(encoding="utf-8")
        return Recipe(policy.policy_id(text, 0), text, fingerprints(self._run, rules))

    def _shard(self, arm: str, fingerprint: str) -> Shard:
        shard = open_shard(self._run.data, fingerprint, arm=arm, progress=lambda _: self._hear())
        if shard.meta.tokenizer != self._tokenizer:
            raise BadConfig(
                f"the shard of arm {arm} ({fingerprint}) was made with another tokenizer",
                where=str(self._run.data),
                found=f"tokenizer {shard.meta.tokenizer[:16]}",
                expected=f"tokenizer {self._tokenizer[:16]}, of tokenizer.json",
                todo="run `andrea prepare RUN`",
            )
        return shard


def _taken(run: RunDir, plan: RoundPlan, which: str) -> Recipe:
    return Recipe(plan.policy, *taken.policy(run, plan.policy, which))


def _of(line: planfile.Line) -> Recipe:
    return Recipe(line.plan.policy, line.policy_text or "", line.plan.arms)


def recipe(line: planfile.Line, run: RunDir) -> Recipe:
    """The recipe of a line's policy, from the first line of it; BadConfig when it is nowhere."""
    for first in (line, *planfile.first_lines(run.plan)):
        if first.plan.policy == line.plan.policy and first.policy_text is not None:
            return _of(first)
    return _taken(run, line.plan, f"which the plan has for steps {line.plan.first} to {line.plan.last}")
