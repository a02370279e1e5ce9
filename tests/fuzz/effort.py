"""How many examples: the same few each time in `make test`, many and fresh ones in `make fuzz`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))


def examples(count: int) -> settings:
    """Settings of one fuzz test."""
    return settings(
        max_examples=count * TIMES,
        derandomize=TIMES == 1,
        database=None,
        phases=(Phase.explicit, Phase.generate),  # a file that fails is small enough to be read as it is
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
