"""The operator's own mixture: the policy's priors, whatever happens. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from andrea_proxy.learners.base import Learner, prior_of


class Fixed(Learner):
    """Weights equal to the priors."""

    name = "fixed"

    def weights(
        self, arms: Sequence[str], priors: Mapping[str, float], epochs: Mapping[str, float]
    ) -> dict[str, float]:
        """The priors."""
        return prior_of(arms, priors)
