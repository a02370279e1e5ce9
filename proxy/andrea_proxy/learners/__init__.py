"""The learners a policy can name, behind one interface (`base.Learner`). Standard library only."""

from __future__ import annotations

from andrea_proxy.learners.base import Learner, State, StepRecord
from andrea_proxy.learners.fixed import Fixed
from andrea_proxy.learners.slope import Slope
from andrea_proxy.learners.ucb1 import Ucb1
from andrea_proxy.learners.uniform import Uniform

LEARNERS: dict[str, type[Learner]] = {kind.name: kind for kind in (Slope, Ucb1, Uniform, Fixed)}

__all__ = ["LEARNERS", "Learner", "State", "StepRecord", "make", "restore"]


def make(name: str, seed: int) -> Learner:
    """A learner that has seen nothing; KeyError for a name that no policy can hold."""
    return LEARNERS[name](seed)


def restore(state: State) -> Learner:
    """The learner that `to_state` described; KeyError, TypeError or ValueError where it described none."""
    return LEARNERS[state["learner"]].from_state(state)
