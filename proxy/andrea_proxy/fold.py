"""The fold: everything the curriculum knows, one recorded step at a time, over the numbers as written.

Promises that equal entries give an equal fold, whether folded at once or with restarts between, and that nothing of
an arm that is not in the policy survives in it. Pure but for the policies it looks up; writes no file.
"""

from __future__ import annotations

from typing import Any

from andrea_corpus.rounds import Regime, pulled
from andrea_proxy import learners
from andrea_proxy.learners import StepRecord
from andrea_proxy.policies import Policies
from andrea_rundir.entries import Entry
from andrea_rundir.plan import round_of, round_steps

Weights = dict[str, float]

MEMORY = 4
"""Rounds whose weights are remembered behind the newest."""


class Fold:
    """A learner under the policy in force, cursors, and the weights of the newest rounds."""

    def __init__(self, policies: Policies, regime: Regime, *, seed: int, round_steps: int, step: int = 0) -> None:
        """Nothing folded yet; `step` steps were done before history begins."""
        self._policies, self._seed, self._size = policies, seed, round_steps
        self.regime = regime
        self.step = step
        self.learner = learners.make(regime.rules.learner, seed)
        self.cursors = dict.fromkeys(sorted(regime.arms), 0)
        self.lifetime: dict[str, int] = {}
        self.weights: dict[int, Weights] = {}
        self.weighed = round_of(step + 1, round_steps) + 1
        self.retired: list[dict[str, Any]] = []

    def observe(self, entry: Entry) -> None:
        """Fold one first record of a step; BadConfig when nothing says what its policy is."""
        step, arms = entry["step"], entry["arms"]
        if entry["policy"] != self.regime.id:
            self._pivot(self._policies.of(entry["policy"]))
        self._weigh(round_of(step, self._size) + 1)
        pulls = sum(count for count, *_ in arms.values())
        if pulls:
            epochs = {arm: self.epochs(arm) for arm in arms}
            self.learner.observe(StepRecord(step, entry["tokens"] // pulls, arms, epochs))
        for arm, (count, *_) in arms.items():
            self.cursors[arm] = self.cursors.get(arm, 0) + count
        self.step = step
        if step % self._size == 0:
            self._weigh(round_of(step, self._size) + 2)

    def epochs(self, arm: str) -> float:
        """How many times the arm's windows have been gone through; 0 for an arm whose shard is gone."""
        windows = self.regime.windows.get(arm, 0)
        return self.cursors.get(arm, 0) / windows if windows else 0.0

    def _weigh(self, upto: int) -> None:
        """The weights of every round up to `upto` that has none yet, from what is folded now; of a gap in history, in
        which there may be any number of rounds, those that are remembered."""
        for number in range(max(self.weighed + 1, upto - MEMORY), upto + 1):
            self.weighed = number
            if number >= self.regime.start // self._size + 2:
                self.weights[number] = self._weights(round_steps(number, self._size)[0])
        if len(self.weights) > MEMORY + 1:
            self.weights = {n: weights for n, weights in self.weights.items() if n >= self.weighed - MEMORY}

    def _weights(self, first: int) -> Weights:
        """The learner's weights of the arms that may be pulled from step `first` on."""
        priors = self.regime.rules.limits(first).priors
        arms = self.regime.active(first, self.cursors)
        return self.learner.weights(arms, priors, {arm: self.epochs(arm) for arm in arms}) if arms else {}

    def _pivot(self, regime: Regime) -> None:
        """Go over to another policy: the learner starts fresh, cursors run on by fingerprint."""
        self.lifetime |= pulled(self.regime.arms, self.cursors)
        gone, here = self.regime.arms.items() - regime.arms.items(), regime.arms.items()
        self.retired = [arm for arm in self.retired if (arm["arm"], arm["fingerprint"]) not in here]
        self.retired += [{"arm": arm, "fingerprint": name, "after": self.step} for arm, name in sorted(gone)]
        self.regime = regime
        self.learner = learners.make(regime.rules.learner, self._seed)
        self.cursors = {arm: self.lifetime.get(name, 0) for arm, name in sorted(regime.arms.items())}
        self.weights = {}
        self.weighed = round_of(self.step + 1, self._size) + 1

    def to_state(self) -> dict[str, Any]:
        """All that it remembers, as JSON."""
        return {
            "policy": self.regime.id,
            "step": self.step,
            "learner": self.learner.to_state(),
            "cursors": dict(sorted(self.cursors.items())),
            "lifetime": dict(sorted(self.lifetime.items())),
            "weights": {str(number): self.weights[number] for number in sorted(self.weights)},
            "weighed": self.weighed,
            "retired": list(self.retired),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any], policies: Policies, *, seed: int, round_steps: int) -> Fold:
        """The fold that `to_state` described; KeyError, TypeError or ValueError for anything else, BadConfig when
        its policy is nowhere."""
        fold = cls(policies, policies.of(state["policy"]), seed=seed, round_steps=round_steps)
        fold.step, fold.weighed = int(state["step"]), int(state["weighed"])
        fold.learner = learners.restore(state["learner"])
        if (fold.learner.name, fold.learner.seed) != (fold.regime.rules.learner, seed):
            raise ValueError("the state of another learner")
        fold.cursors = {arm: int(state["cursors"][arm]) for arm in sorted(fold.regime.arms)}
        fold.lifetime = {str(name): int(count) for name, count in state["lifetime"].items()}
        fold.weights = {int(number): dict(weights) for number, weights in state["weights"].items()}
        fold.retired = list(state["retired"])
        return fold
