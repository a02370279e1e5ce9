"""What a checkpoint costs the loop: the snapshot beside bare copies of as many bytes and beside DCP's block.

    python benchmarks/stall.py [--quick]

Then, in a real trainer with a checkpoint every 100 steps, all time that a checkpointed step and the two after it take
beyond a plain one, audit apart: whatever the writing and hashing beside it takes from the loop is in there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pairs
from apart import apart, main, scratch
from publish import REPEATS, ROUNDS, shape_of

PUBLISH = str(Path(__file__).with_name("publish.py"))
EVERY = 100


def loop(folder: str, name: str, steps: str, device: str = "cpu", precision: str = "fp32") -> dict[str, float]:
    """A real run: `stall`, seconds beyond a plain step around a checkpoint; `step`, a plain one's; `save`, one save's
    from the snapshot to durable, beside the training."""
    from stamped import gaps, make, train

    from andrea_rundir.events import read

    changes: dict[str, dict[str, Any]] = {
        "run": {"device": device, "precision": precision},
        "samples": {"tokens": 16},
        "probe": {"every": 100 * EVERY},
    }
    run = make(Path(folder), name, steps=2 * int(steps), changes=changes)
    took = gaps(train(run, int(steps)))
    step = median(took)
    edges = range(EVERY - 1, len(took) - 3, EVERY)  # the gap that begins with step 100 has number 99
    stall = median(sum(took[i : i + 3]) - 3 * step for i in edges)
    saves = [event["seconds"] for event in read(run.events) if event["event"] == "checkpoint"]
    return {"step": step, "stall": stall, "save": median(saves)}


def rows(quick: bool) -> Iterator[pairs.Row]:
    for name in ["andrea-tiny"] if quick else list(REPEATS):
        with scratch() as folder:
            measure = partial(apart, PUBLISH)
            sides = {
                "ours": partial(measure, "ours", folder, name),
                "async": partial(measure, "dcp", folder, name, "async"),
                "kept": partial(measure, "dcp", folder, name, "kept"),
            }
            found = pairs.alternate(sides, ROUNDS)
        size, asked = f"{shape_of(name).n_params / 1e6:.1f}M", name == "andrea-120m"
        mine = [one["block"] for one in found["ours"]]
        copies = [one["copy"] for one in found["ours"]]
        yield pairs.costs("block of a save", size, "bare copy", mine, copies, 1.3 if asked else None)
        for side, title, bar in (("async", "DCP async_save", 2.5), ("kept", "DCP async_save, stager kept", None)):
            theirs = [one["block"] for one in found[side]]
            yield pairs.faster("block of a save", size, title, mine, theirs, bar if asked else None)
    with scratch() as folder:
        real = apart(__file__, "loop", folder, "andrea-tiny", 230 if quick else 530)
    share = 100 * real["stall"] / (EVERY * real["step"])
    yield pairs.figure(f"stall at cadence {EVERY}, audit apart", "0.9M", [share], " % of the time", at_most=0.5)


if __name__ == "__main__":
    sys.exit(main({"loop": loop}, rows))
