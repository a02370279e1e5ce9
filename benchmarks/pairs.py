"""Side by side: the one way in which measurements are interleaved, made a ratio, and shown as a row of the table.

Pure; standard library only. A ratio is taken within a round, where both sides met the same machine, and the median over
rounds is shown with the least and the greatest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Found = TypeVar("Found")

HEADER = """\
| what | size | ours | against | theirs | ratio: median (least to greatest) | bar | met |
|---|---|---|---|---|---|---|---|"""


def alternate(sides: Mapping[str, Callable[[], Found]], rounds: int) -> dict[str, list[Found]]:
    """Every side once a round, in order (A B A B ...): what each found, round by round."""
    found: dict[str, list[Found]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(side())
    return found


@dataclass(frozen=True)
class Row:
    """One line of the table. `values`: a ratio a round, the figure itself where there is no other side, or none."""

    what: str
    size: str
    ours: str
    against: str
    theirs: str
    values: tuple[float, ...]
    unit: str = ""
    bar: str = "-"
    met: bool | None = None

    def line(self) -> str:
        """As the table shows it."""
        spread = "-"
        if self.values:
            low, middle, high = (f"{f(self.values):.3g}" for f in (min, median, max))
            spread = f"{middle}{self.unit} ({low} to {high})" if len(self.values) > 1 else f"{middle}{self.unit}"
        met = {None: "-", True: "yes", False: "**no**"}[self.met]
        cells = (self.what, self.size, self.ours, self.against, self.theirs, spread, self.bar, met)
        return f"| {' | '.join(cells)} |"


def faster(
    what: str, size: str, against: str, ours: Sequence[float], theirs: Sequence[float], at_least: float | None = None
) -> Row:
    """How many times as fast as the other side; all in seconds."""
    values = tuple(b / a for a, b in zip(ours, theirs, strict=True))
    bar, met = ("-", None) if at_least is None else (f"at least {at_least:g}", median(values) >= at_least)
    return Row(what, size, seconds(median(ours)), against, seconds(median(theirs)), values, bar=bar, met=met)


def costs(
    what: str, size: str, against: str, ours: Sequence[float], theirs: Sequence[float], at_most: float | None = None
) -> Row:
    """How many times what the other side takes; all in seconds."""
    values = tuple(a / b for a, b in zip(ours, theirs, strict=True))
    bar, met = ("-", None) if at_most is None else (f"at most {at_most:g}", median(values) <= at_most)
    return Row(what, size, seconds(median(ours)), against, seconds(median(theirs)), values, bar=bar, met=met)


def figure(
    what: str,
    size: str,
    values: Sequence[float],
    unit: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Row:
    """A figure that has no other side."""
    middle, bar, met = median(values), "-", None
    if at_most is not None:
        bar, met = f"at most {at_most:g}{unit}", middle <= at_most
    elif at_least is not None:
        bar, met = f"at least {at_least:g}{unit}", middle >= at_least
    return Row(what, size, f"{middle:.3g}{unit}", "-", "-", tuple(values), unit, bar, met)


def missing(what: str, size: str, why: str) -> Row:
    """What cannot be measured here."""
    return Row(what, size, f"not measured: {why}", "-", "-", ())


def seconds(value: float) -> str:
    """A duration with three digits and the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
