"""A dozen kills of either process, at instants all over their lives; `make storm` has three hundred."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from faults.storm import different

KILLS = 12


def test_a_storm_of_kills_leaves_no_trace(sources: dict[str, Path], tmp_path: Path) -> None:
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}: `cd tests && python -m faults.storm --kills {KILLS} --seed {seed}` does it again")
    storm, found = different(tmp_path, KILLS, seed, sources)
    assert found == []
    assert sum(storm.struck.values()) == KILLS and storm.reached[-1] > storm.reached[0]
