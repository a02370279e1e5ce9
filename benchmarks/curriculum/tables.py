"""What `real.py` prints: the results of all runs as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from curriculum.families import Floats
from curriculum.sources import DECOYS
from curriculum.suite import lead

SEEDS = (1, 2, 3, 4, 5)
LEARNERS_SHOWN = ("slope", "uniform", "proportional", "ucb1", "loss-level", "ado-like")
RIVALS = ("uniform", "proportional")

Bits = Mapping[str, float]
"""Held-out bits per byte by arm."""


@dataclass(frozen=True)
class Result:
    """One run: what the model knew before and after it, and what it was fed."""

    learner: str
    seed: int
    before: Bits
    after: Bits
    pulls: Mapping[str, int]
    epochs: Mapping[str, float]
    seconds: float


Results = dict[tuple[str, int], Result]
"""By learner and seed, complete."""
Figure = Callable[[Result], float]


def real(result: Result) -> list[float]:
    """Bits per byte of the arms that are no decoys."""
    return [result.after[arm] for arm in sorted(result.after) if arm not in DECOYS]


FIGURES: dict[str, Figure] = {
    "mean of real": lambda result: float(np.mean(real(result))),
    "worst real": lambda result: max(real(result)),
    **{decoy: lambda result, decoy=decoy: result.after[decoy] for decoy in DECOYS},  # type: ignore[misc]
    "mean of all": lambda result: float(np.mean(list(result.after.values()))),
}


def seeds(results: Results, learner: str, figure: Figure) -> Floats:
    """A figure of a learner's runs, [SEEDS]."""
    return np.array([figure(results[learner, seed]) for seed in SEEDS])


def average(results: Results, learner: str, figure: Figure) -> float:
    """Its mean."""
    return float(seeds(results, learner, figure).mean())


def difference(results: Results, learner: str, rival: str, figure: Figure) -> str:
    """The mean paired difference with its 95 % interval."""
    mean, half = lead(seeds(results, learner, figure), seeds(results, rival, figure))
    return f"{mean:+.4f} ± {half:.4f}"


def worst_change(results: Results, learner: str, rival: str) -> str:
    """The real source that loses most against the rival (or gains least), and by how much, in the mean of the seeds."""
    arms = [arm for arm in sorted(next(iter(results.values())).after) if arm not in DECOYS]
    changes = {arm: average(results, learner, after(arm)) / average(results, rival, after(arm)) - 1.0 for arm in arms}
    arm = max(changes, key=changes.__getitem__)
    return f"{arm} {100.0 * changes[arm]:+.2f} %"


def after(arm: str) -> Figure:
    """Bits per byte of one arm."""
    return lambda result: result.after[arm]


def fed(arm: str) -> Figure:
    """Per cent of the pulls."""
    return lambda result: 100.0 * result.pulls[arm] / sum(result.pulls.values())


def epochs(arm: str) -> Figure:
    """How often an arm's windows were gone through."""
    return lambda result: result.epochs[arm]


def report(results: Results) -> Iterator[str]:
    """Levels, differences to each rival, sources one by one, what was fed; Markdown, line by line."""
    arms = sorted(next(iter(results.values())).after)
    start = np.mean([list(result.before.values()) for result in results.values()])
    yield f"Held-out bits per byte, mean of {len(SEEDS)} seeds; {start:.2f} before the first step:\n"
    rows = ([name, *(f"{average(results, name, f):.4f}" for f in FIGURES.values())] for name in LEARNERS_SHOWN)
    yield from table(["learner", *FIGURES], rows)
    for rival in RIVALS:
        yield f"\nDifference to {rival} (less is better), paired 95 % interval, and the real source that fares worst:\n"
        rows = (
            [name, *(difference(results, name, rival, f) for f in FIGURES.values()), worst_change(results, name, rival)]
            for name in LEARNERS_SHOWN
            if name != rival
        )
        yield from table(["learner", *FIGURES, "worst change"], rows)
    yield "\nHeld-out bits per byte by arm:\n"
    rows = ([name, *(f"{average(results, name, after(arm)):.3f}" for arm in arms)] for name in LEARNERS_SHOWN)
    yield from table(["learner", *arms], rows)
    yield "\nPer cent of the pulls (epochs):\n"
    rows = (
        [name, *(f"{average(results, name, fed(a)):.1f} ({average(results, name, epochs(a)):.1f})" for a in arms)]
        for name in LEARNERS_SHOWN
    )
    yield from table(["learner", *arms], rows)
    spent = sum(result.seconds for result in results.values())
    yield f"\n{len(results)} runs, {spent / 60.0:.0f} minutes."


def table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    """Markdown."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
