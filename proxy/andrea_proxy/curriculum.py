"""The curriculum: what the trainer is to train on next, round by round, two rounds ahead of it.

Promises that the plan of round k is a function of policy, seed and the steps on record up to the end of round k-2, and
of where round k-1 leaves the run; that a published line is superseded only by a fallback which the trainer recorded;
and that the first two rounds of a run and of a policy follow the prior. Writes `plan.jsonl`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from andrea_corpus.rounds import Layout, Regime, Standing, after, lay_out
from andrea_proxy.policies import Policies
from andrea_rundir import planfile
from andrea_rundir.config import RunConfig
from andrea_rundir.plan import RoundPlan, round_of, round_steps
from andrea_rundir.planfile import Line, PlanFile

Weights = Mapping[str, float]

_TAIL = 64
"""Lines looked back at on opening: more than can be out of order."""


@dataclass(frozen=True)
class Known:
    """What planning looks at besides the plan: the last step folded, weights by round, cursors of retired arms."""

    step: int
    weights: Callable[[int], Weights | None]
    lifetime: Mapping[str, int]


class Curriculum:
    """Owns the plan. `standing` is where its last line in force leaves the run; None while nobody knows."""

    def __init__(self, plan: PlanFile, policies: Policies, config: RunConfig) -> None:
        """Goes on from the file; ValueError when its lines cannot be read."""
        self._plan, self._policies = plan, policies
        self._size, self._batch = config.round_steps, config.optimizer.batch_size
        self._every, self._last = config.checkpoint.every, config.optimizer.max_steps
        self.notes: list[str] = []
        """What limited the newest lines beyond floors and caps; said when it changes."""
        self._recorded: dict[int, RoundPlan] = {}
        self._stated = {line.plan.policy for line in planfile.first_lines(plan.path)}
        self._fallbacks = {line.plan.round: _digest(line.plan) for line in planfile.fallbacks(plan.path)}
        self.standing, self._ahead = follow(plan.path, self._size, self._batch)

    def begin(self, regime: Regime, step: int) -> None:
        """Nothing was trained yet but the `step` steps of a file from elsewhere: plan from there on."""
        zero = dict.fromkeys(sorted(regime.arms), 0)
        self.standing = Standing(step, regime.id, regime.arms, zero, zero)

    def fell_back(self, plans: Sequence[tuple[RoundPlan, bool]]) -> list[RoundPlan]:
        """Take over rounds that the trainer recorded, in its order; those that are in force now and were not known yet.

        With each comes whether the trainer stood right before it. Where it did not, and the plan is not there yet
        either, the record is of an earlier pass over these steps: it waits for its turn. OSError.
        """
        planned = self.standing.step if self.standing is not None else -1
        fresh: dict[bytes, RoundPlan] = {}
        for plan, here in plans:
            digest = _digest(plan)
            if self._fallbacks.get(plan.round) == digest:
                continue
            if here or plan.first <= planned + 1:
                fresh[digest] = plan
            else:
                self._recorded[plan.round] = plan
        if not fresh:
            return []
        self._append([Line(plan, fallback=True) for plan in fresh.values()])
        self._fallbacks |= {plan.round: digest for digest, plan in fresh.items()}
        last = list(fresh.values())[-1]
        self.standing = after(last, self._batch)
        ahead = {number: plan for number, plan in self._ahead.items() if number > last.round}
        self._ahead = {last.round: last}
        while (then := ahead.get(round_of(self.standing.step + 1, self._size))) and self.standing.takes(then):
            self._ahead[then.round] = then
            self.standing = after(then, self._batch)
        return list(fresh.values())

    def publish(self, known: Known, wanted: Callable[[int], Regime] | None) -> list[Line]:
        """Append every line that is due, durably, and return them. OSError: nothing was appended.

        `wanted`: a pivot that is asked for; given the step after which it takes effect, the policy.
        """
        lines: list[Line] = []
        standing = self.standing
        while standing is not None and self._due(standing, known):
            if wanted is not None and standing.step == boundary(standing.step, self._every):
                standing, wanted = standing.fresh(wanted(standing.step), known.lifetime), None
            recorded = self._recorded.get(round_of(standing.step + 1, self._size))
            if recorded is not None and standing.takes(recorded):
                lines.append(Line(recorded, fallback=True))
                standing = after(recorded, self._batch)
            elif (laid := self._lay_out(standing, known)) is not None:
                lines.append(Line(laid.plan, scaled=laid.scaled))
                standing = laid.end
            else:
                break
        if lines:
            self._append(lines)
            self.standing = standing
            self._ahead |= {line.plan.round: line.plan for line in lines}
            self._fallbacks |= {line.plan.round: _digest(line.plan) for line in lines if line.fallback}
            self._recorded = {n: plan for n, plan in self._recorded.items() if n > lines[-1].plan.round}
            oldest = round_of(known.step + 1, self._size) - 1
            self._ahead = {number: plan for number, plan in self._ahead.items() if number >= oldest}
        return lines

    def _due(self, standing: Standing, known: Known) -> bool:
        """Whether the round after `standing` begins there, is to be trained, and all it depends on is known."""
        number = round_of(standing.step + 1, self._size)
        first = round_steps(number, self._size)[0]
        return standing.step + 1 == first <= self._last and known.step >= (number - 1) * self._size

    def _lay_out(self, standing: Standing, known: Known) -> Layout | None:
        """The round after `standing`; None when its arms are used up."""
        number = round_of(standing.step + 1, self._size)
        regime = self._policies.of(standing.policy)
        weights = known.weights(number) if number >= regime.start // self._size + 2 else None
        active = regime.active(standing.step + 1, standing.cursors)
        if weights is not None and not weights.keys() >= set(active):
            weights = None
        last = round_steps(number, self._size)[1]
        laid = lay_out(regime, standing, number, last, weights=weights, batch_size=self._batch)
        self._note(regime, standing, laid)
        return laid

    def _note(self, regime: Regime, standing: Standing, laid: Layout | None) -> None:
        """Precedence is epoch limit, floor, cap, learner: say where the first one bites."""
        phase = regime.rules.limits(standing.step + 1)
        active = regime.active(standing.step + 1, standing.cursors)
        out = [arm for arm in phase.arms if arm not in active and phase.caps[arm] > 0]
        self.notes = [f"arm {arm} is out: it has reached its {regime.rules.arms[arm].max_epochs} epochs" for arm in out]
        if laid is None:
            self.notes.append("all arms are used up: there is nothing left to plan")
        elif laid.scaled:
            self.notes.append("the caps of the arms that are left sum to less than 1: they are scaled up together")

    def _append(self, lines: list[Line]) -> None:
        """The first line of each policy gets its text."""
        stated = set(self._stated)
        full = []
        for line in lines:
            name = line.plan.policy
            text = None if name in stated else self._policies.of(name).text
            stated.add(name)
            full.append(Line(line.plan, line.fallback, line.scaled, text))
        self._plan.append(full)
        self._stated = stated


def boundary(step: int, every: int) -> int:
    """The step after which a pivot takes effect when all up to `step` is planned: a multiple of the cadence, not 0."""
    return max(1, -(-step // every)) * every


def follow(path: Path, size: int, batch_size: int) -> tuple[Standing | None, dict[int, RoundPlan]]:
    """Where the last line in force of a plan leaves the run, and the newest rounds in force, by number.

    Later lines count, and what no longer fits does not. None without a line; ValueError at one that cannot be read.
    """
    newest = {line.plan.round: line for line in list(islice(planfile.read_back(path), _TAIL))[::-1]}
    standing: Standing | None = None
    inforce: dict[int, RoundPlan] = {}
    for number in sorted(newest):
        plan = newest[number].plan
        begins = plan.first == round_steps(number, size)[0]
        goes_on = standing is None or standing.takes(plan)
        if newest[number].fallback or (begins and goes_on):
            try:
                standing = after(plan, batch_size)
            except ValueError:  # made for another batch size: the trainer does not take it either
                continue
            inforce[number] = plan
    return standing, inforce


def _digest(plan: RoundPlan) -> bytes:
    return blake2b(planfile.encode(Line(plan)), digest_size=16).digest()
