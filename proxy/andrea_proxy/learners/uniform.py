"""Every active arm alike, whatever happens and whatever the priors say. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from andrea_proxy.learners.base import Learner


class Uniform(Learner):
    """Equal weights."""

    name = "uniform"

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        """One each."""
        return dict.fromkeys(sorted(arms), 1.0)
