"""The run that nothing happened to, made once for all that are compared with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from andrea_rundir.names import RunDir
from faults.pair import PATIENT, finish


@pytest.fixture(scope="session")
def whole(make: Callable[..., RunDir]) -> RunDir:
    run = make("whole", PATIENT)
    finish(run)
    return run
