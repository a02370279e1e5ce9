"""`make bench-real`: the learners on real text with a small real model, paired by seed, on one thread.

Each finished run is a line of JSON in `results.jsonl` of the folder; started again, it goes on where it was killed.
Results of other learners' code are not noticed: begin with another folder then. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

import torch

from andrea_corpus.shards import Shard
from andrea_service.errors import boundary
from curriculum.simulation import play
from curriculum.sources import gather
from curriculum.suite import LEARNERS
from curriculum.tables import LEARNERS_SHOWN, SEEDS, Result, Results, report
from curriculum.training import HELD_WINDOWS, OPTIMIZER, SHAPE, STEPS, Training, prepared

FOLDER = Path(__file__).parents[2] / "runs" / "bench-real"


def one(shards: Mapping[str, Shard], name: str, seed: int) -> Result:
    """A whole run of one learner."""
    began = time.monotonic()
    training = Training(shards, seed)
    learner = LEARNERS[name](training.windows)
    learner.seed = seed
    before = training.measure()
    pulls = play(training, learner, STEPS)
    epochs = {arm: pulls[arm] / training.windows[arm] for arm in pulls}
    return Result(name, seed, before, training.measure(), pulls, epochs, time.monotonic() - began)


def setting(shards: Mapping[str, Shard]) -> str:
    """A digest of all that the runs share: text, model, optimizer, length, the probe's windows."""
    facts = ({name: shard.fingerprint for name, shard in shards.items()}, SHAPE, OPTIMIZER, STEPS, HELD_WINDOWS)
    return blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def recorded(path: Path, digest: str) -> Results:
    """What was finished under this setting; a line that a kill tore is none."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if fields.pop("setting") == digest:
            result = Result(**fields)
            found[result.learner, result.seed] = result
    return found


def record(path: Path, digest: str, result: Result) -> None:
    """Appends; the first newline ends what a kill may have torn."""
    with path.open("a") as file:
        file.write("\n" + json.dumps({"setting": digest, **asdict(result)}) + "\n")


def main() -> int:
    """Runs what is not on record, seed by seed, then prints the tables."""
    parser = argparse.ArgumentParser(prog="python -m curriculum.real", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="shards and results; default: runs/bench-real")
    args = parser.parse_args()
    torch.set_num_threads(1)
    shards = prepared(gather(), args.folder)
    path, digest = args.folder / "results.jsonl", setting(shards)
    results = recorded(path, digest)
    for seed in SEEDS:
        for name in LEARNERS_SHOWN:
            if (name, seed) not in results:
                results[name, seed] = one(shards, name, seed)
                record(path, digest, results[name, seed])
                done = f"{len(results)} of {len(SEEDS) * len(LEARNERS_SHOWN)}: {name}, seed {seed}"
                print(f"{done}, {results[name, seed].seconds:.0f} s", file=sys.stderr, flush=True)
    print("\n".join(report(results)))
    return 0


if __name__ == "__main__":
    sys.exit(boundary(main, "bench-real"))
