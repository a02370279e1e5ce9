"""The policies of a run by id: rules, fingerprints and windows, from the plan's first lines and the trainer's events.

Promises that a policy is only planned with when all of its shards have been found. Reads `plan.jsonl`, `policy.toml`,
`data/` and `events/`; writes no file.
"""

from __future__ import annotations

from collections.abc import Mapping

from andrea_corpus.ledger import TODO, fingerprints
from andrea_corpus.rounds import Regime
from andrea_corpus.shards import read_meta
from andrea_corpus.tokenizer import token_dtype
from andrea_rundir import planfile, policy, taken
from andrea_rundir.faults import BadConfig, raise_shortage
from andrea_rundir.names import RunDir


class Policies:
    """Regimes by policy id."""

    def __init__(self, run: RunDir, *, context: int, round_steps: int) -> None:
        """Knows what the plan says; ValueError when its lines cannot be read."""
        self._run, self._context, self._round_steps = run, context, round_steps
        self._known: dict[str, tuple[str, dict[str, str]]] = {}
        self._regimes: dict[str, Regime] = {}
        for line in planfile.first_lines(run.plan):
            self.learn(line.plan.policy, line.policy_text or "", line.plan.arms)

    def learn(self, name: str, text: str, arms: Mapping[str, str]) -> None:
        """Take the text and fingerprints of a policy from history; what is known already stays."""
        self._known.setdefault(name, (text, dict(arms)))

    def of(self, name: str) -> Regime:
        """The policy of that id; an arm whose shard is gone has 0 windows. BadConfig when nothing says what it is."""
        if name not in self._regimes:
            if name not in self._known:
                self._known[name] = taken.policy(self._run, name, "which steps on record were trained under")
            self._regimes[name] = self._regime(name, *self._known[name])
        return self._regimes[name]

    def prepared(self, text: str, where: str, start: int) -> Regime:
        """A policy that is to be in force after step `start`; it is known from now on. BadConfig as `usable`."""
        name = policy.policy_id(text, start)
        self._known[name] = (text, self.usable(text, where))
        self._regimes[name] = self._regime(name, *self._known[name])
        return self._regimes[name]

    def usable(self, text: str, where: str) -> dict[str, str]:
        """The fingerprints of a policy's arms; BadConfig when it cannot be used, is not prepared or lacks a shard."""
        rules = policy.parse(text, where, self._run.root)
        rules.check_rounds(self._round_steps, where)
        arms = fingerprints(self._run, rules)
        self.find(arms)
        return arms

    def find(self, arms: Mapping[str, str]) -> None:
        """BadConfig naming arm, fingerprint and `andrea prepare RUN` for a shard that is not there as it should be."""
        for arm, fingerprint in sorted(arms.items()):
            try:
                meta = read_meta(self._run.data, fingerprint)
                if meta is None:
                    raise FileNotFoundError(f"no {fingerprint}.json")
                width = token_dtype(meta.vocab_size).itemsize
                for part, tokens in (("train", meta.train_tokens), ("held", meta.held_tokens)):
                    path = self._run.data / f"{fingerprint}.{part}.bin"
                    if (size := path.stat().st_size) != tokens * width:
                        raise ValueError(f"{path.name} has {size} bytes, not {tokens * width}")
            except (OSError, ValueError) as error:
                raise_shortage(error)
                raise BadConfig(
                    f"the shard of arm {arm} ({fingerprint}) is missing or damaged",
                    where=str(self._run.data),
                    found=str(error),
                    todo=TODO,
                ) from error

    def _regime(self, name: str, text: str, arms: Mapping[str, str]) -> Regime:
        rules = policy.parse(text, f"policy {name}", self._run.root)
        windows = {arm: self._windows(fingerprint) for arm, fingerprint in sorted(arms.items())}
        return Regime(name, rules, text, dict(sorted(arms.items())), windows)

    def _windows(self, fingerprint: str) -> int:
        """ceil((tokens - 1) / context); 0 for a shard that is gone."""
        try:
            meta = read_meta(self._run.data, fingerprint)
        except (OSError, ValueError) as error:
            raise_shortage(error)
            return 0
        return 0 if meta is None else -((1 - meta.train_tokens) // self._context)
