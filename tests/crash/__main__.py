"""`python -m crash`: the whole exploration, both processors, a few minutes; 1 if anything that was promised was lost.

Prints how many different states were gone through, what each mutation of the recording cost, and how many states real
processes were sent on from.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from crash import mutations, recorded, truth
from crash.explorer import draw, states
from crash.ops import Recording
from crash.readers import Readers
from crash.truth import Truth
from crash.twin import different

CHUNK, STEP, LEAST = 12, 1000, 10_000
"""Prefixes that a process goes through at a time; states between two lines of progress; and in the whole."""
Found = tuple[set[int], list[str]]


def explore(recording: Recording, known: Truth, folder: Path, draws: int, start: int) -> Found:
    """The states of a few prefixes: their fingerprints, and what is wrong with them."""
    readers = Readers(folder / str(os.getpid()), known)
    seen, wrong = set(), []
    for state in states(recording, draws=draws, start=start, stop=start + CHUNK):
        seen.add(state.fingerprint)
        found = readers.complaints(state)
        wrong += [f"after {state.prefix} deeds, {state.fate}: {complaint}" for complaint in found]
    return seen, wrong


MUTATIONS = (*mutations.CHECKPOINT, *mutations.OTHERS)


def mutate(recording: Recording, known: Truth, folder: Path, number: int) -> tuple[str, list[str]]:
    """The name of a mutation and the first loss."""
    mutation = MUTATIONS[number]
    return mutation.name, next(mutations.losses(mutation, recording, known, folder / str(os.getpid())), [])


def go_on(recording: Recording, known: Truth, folder: Path, number: int, of: int) -> Iterator[str]:
    """One state of each of `of` stretches of the recording, drawn, and real processes from there."""
    prefix = max(len(recording.ops) * number // of, 70)
    found = list(states(recording, start=prefix, stop=prefix + 1, draws=4))
    state = found[draw(len(found), number)]
    for difference in different(state.tree, folder / f"twin{number}", known):
        yield f"sent on after {prefix} deeds, {state.fate}: {difference}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash", description=__doc__)
    parser.add_argument("--draws", type=int, default=8, help="mixtures drawn for each prefix")
    parser.add_argument("--twins", type=int, default=8, help="states from which real processes go on")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as disk, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        recording = recorded.make(Path(disk) / "made")
        known, folder = truth.learn(recording), Path(memory)
        print(f"{len(recording.ops)} deeds recorded", flush=True)
        seen: set[int] = set()
        wrong: list[str] = []
        with multiprocessing.get_context("fork").Pool(args.processes) as pool:
            look = partial(explore, recording, known, folder, args.draws)
            for marks, complained in pool.imap_unordered(look, range(0, len(recording.ops) + 1, CHUNK)):
                if len(seen) // STEP < len(seen := seen | marks) // STEP:
                    print(f"  {len(seen)} states, {time.monotonic() - began:.0f} s", flush=True)
                wrong += complained
            print(f"{len(seen)} different states, {len(wrong)} complaints", flush=True)
            if len(seen) < LEAST:
                wrong.append(f"fewer than {LEAST} states: give more --draws")
            hurt = partial(mutate, recording, known, folder)
            for name, lost in pool.imap(hurt, range(len(MUTATIONS))):
                print(f"  {name}: {lost[1] if lost else 'NOT SEEN'}", flush=True)
                wrong += [] if lost else [f"not seen: {name}"]
        for number in range(args.twins):
            wrong += go_on(recording, known, Path(disk), number, args.twins)
        print(f"{args.twins} sent on to the end; {time.monotonic() - began:.0f} s")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
