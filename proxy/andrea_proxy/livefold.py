"""The fold of a run at work: taken from its cache or folded anew, moved on entry by entry, cached again.

Promises that it is over what `.loss.json` holds, whichever way it came about, and that the cache is never ahead of
what it was made from. Writes `.state.json` through `andrea_proxy.state`.
"""

from __future__ import annotations

from collections.abc import Callable

from andrea_proxy import state
from andrea_proxy.fold import Fold, Weights
from andrea_proxy.past import new_fold, refold, weights_since
from andrea_proxy.policies import Policies
from andrea_proxy.state import Content, Found
from andrea_rundir import entries
from andrea_rundir.config import RunConfig
from andrea_rundir.entries import Entry
from andrea_rundir.lossfile import LossFile
from andrea_rundir.names import RunDir

Say = Callable[[str, int], None]
"""Takes a sentence and the step it is about."""


class LiveFold:
    """`now` is the fold over the first records of the steps in `loss`."""

    def __init__(
        self,
        run: RunDir,
        config: RunConfig,
        policies: Policies,
        loss: LossFile,
        cache: tuple[Content | None, str],
        say: Say,
    ) -> None:
        """`cache` is what `state.read` found, by which `loss` was opened. BadConfig as in `past.first_regime`."""
        self._run, self._config, self._policies, self._loss = run, config, policies, loss
        self._zombies: list[Content] = []
        self._ended: Content | None = None
        self._saved: object = None
        self.now, self.position = self._restore(*cache, say)
        """`position`: segment and offset of the events that may tell of more than was in the file at first."""

    def _restore(self, content: Content | None, problem: str, say: Say) -> tuple[Fold, tuple[int, int]]:
        """From the cache and what came since, else anew, saying why."""
        found = Found(problem=problem)
        if content is not None:
            run = self._config.run
            size = self._config.round_steps
            found = state.restore(content, self._loss, self._policies, run_id=run.id, seed=run.seed, round_steps=size)
        if self._loss.torn:
            found.position = (0, 0)
            say(f".loss.json was torn: {self._loss.torn}; what is missing comes from the events", 0)
        if found.fold is not None:
            self._zombies = found.retired
            return refold(self._loss.since(found.size), found.fold), found.position
        fold = refold(self._loss.since(0), self._nothing())
        self._zombies = state.zombies(found, fold)
        if found.problem:
            gone = ", ".join(str(arm["arm"]) for arm in self._zombies)
            retired = f"; arms it carried that are not in the policy are retired: {gone}" if gone else ""
            say(f".state.json is not used: {found.problem}; folded anew from history{retired}", fold.step)
        return fold, (0, 0)

    def observe(self, entry: Entry) -> None:
        """Fold the first record of a step, which is in the file. BadConfig: nothing says what its policy is."""
        if entry["policy"] != self.now.regime.id and self.now.step:
            self._ended, self._zombies = self._render(self.now), []
        self.now.observe(entry)

    def weights(self, number: int) -> Weights | None:
        """The learner's weights for a round; folded anew where the fold has gone past it."""
        fold = self.now
        if number not in fold.weights and number <= fold.weighed:
            fold.weights = {**weights_since(entries.read(self._run.loss), self._nothing(), number), **fold.weights}
        return fold.weights.get(number)

    def ended(self) -> Content:
        """The state of the policy before the one in force, after its last step."""
        if self._ended is None or self._ended["step"] != self.now.regime.start:
            self._ended = self._render(refold(entries.read(self._run.loss), self._nothing(), self.now.regime.start))
        return self._ended

    def save(self, position: tuple[int, int]) -> None:
        """Cache it, if there is anything new: all events before `position` are in it. OSError leaves the old cache."""
        if (key := (self._loss.entries, position)) == self._saved:
            return
        self._loss.sync()
        state.save(self._run, self._render(self.now), self._loss, position)
        self._saved = key

    def _render(self, fold: Fold) -> Content:
        run_id, size, batch = self._config.run.id, self._config.round_steps, self._config.optimizer.batch_size
        plan = state.line_of(self._run, fold.step, size)
        return state.render(self._run, run_id, fold, plan, batch, self._zombies)

    def _nothing(self) -> Fold:
        return new_fold(self._run, self._config, self._policies)
