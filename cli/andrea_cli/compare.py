"""Compare two branches of a run since they parted: loss, held-out text, arms, and a verdict with its interval.

A and B have a run in common that one or both were forked from; figures stand side by side by steps since then. The
verdict is the mean difference of held-out bits a byte over all probes that both have, with a 95 % interval that allows
for neighbouring probes being alike (how: `andrea_cli.verdict`). Both branches share one seed and one past: another seed
may decide otherwise. Exits 0 when they were compared; 1 when they are not related.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from andrea_cli import facts, lineage, output
from andrea_cli.alignment import Branch, Point, aligned, arms, branch
from andrea_cli.verdict import LEAST, Verdict, judge
from andrea_rundir import config
from andrea_rundir.faults import EXIT_OK, Refused, Usage
from andrea_rundir.names import RunDir, locate
from andrea_rundir.publish import publish

SHOWN = 12
"""Points in the table for people; --json has all."""
KINDS = (".png", ".svg")


@dataclass(frozen=True)
class Fork:
    """The run, or the file, that two branches have in common, up to a step."""

    id: str
    name: str
    step: int


def add_arguments(parser: ArgumentParser) -> None:
    """A, B, --plot."""
    parser.add_argument("run", metavar="A")
    parser.add_argument("other", metavar="B")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="draw both: a .png or .svg")


def run(args: Namespace) -> int:
    """Align, judge, print, draw."""
    if args.plot is not None and args.plot.suffix not in KINDS:
        raise Usage("a plot of this kind is not made", where=str(args.plot), expected=" or ".join(KINDS))
    runs = [locate(args.run), locate(args.other)]
    for directory in runs:
        facts.settings(directory)
    settings = [config.load(directory.run_toml) for directory in runs]
    fork = parted(runs, settings)
    one, other = (branch(directory, own, fork.step) for directory, own in zip(runs, settings, strict=True))
    points = aligned(one, other)
    verdict = judge([d for point in points if (d := point.difference) is not None])
    shown = _facts(fork, settings, (one, other), points, verdict)
    if args.plot is not None:
        from andrea_cli.compare_plot import draw

        publish(args.plot, draw(one, other, points, args.plot.suffix.removeprefix(".")), mode=0o644)
        shown["plot"] = str(args.plot)
    output.show(args, shown, _lines(shown))
    return EXIT_OK


def parted(runs: list[RunDir], settings: list[config.RunConfig]) -> Fork:
    """Where two runs parted; Refused when they have nothing in common, or everything."""
    one, other = (
        lineage.ancestors(own.run.id, own.run.name, lineage.read(directory))
        for directory, own in zip(runs, settings, strict=True)
    )
    where = f"{runs[0].root} and {runs[1].root}"
    common = lineage.parted(one, other)
    if common is None:
        raise Refused(
            "these runs have nothing in common",
            where=where,
            found=f"{one[-1].name} and {other[-1].name} at their beginnings",
            expected="two branches of one run",
            todo="andrea fork makes one",
        )
    if common.step is None:
        raise Refused("this is one run, twice", where=where, expected="two branches of one run")
    return Fork(common.id, common.name, common.step)


def _facts(
    fork: Fork,
    settings: list[config.RunConfig],
    both: tuple[Branch, Branch],
    points: list[Point],
    verdict: Verdict | None,
) -> dict[str, Any]:
    tables = [own.model_dump(mode="json") for own in settings]
    differs = config.differences(*tables)
    return {
        "parted": asdict(fork),
        "branches": [
            {
                "run": str(b.run.root),
                "name": own.run.name,
                "id": own.run.id,
                "steps": b.last,
                "policies": b.policies,
            }
            for b, own in zip(both, settings, strict=True)
        ],
        "differs": {name: values for name, values in differs.items() if name not in ("run.id", "run.name")},
        "points": [asdict(point) | {"difference": point.difference} for point in points],
        "arms": arms(*both),
        "verdict": None if verdict is None else asdict(verdict),
        "sentence": _sentence(points, verdict),
    }


def _sentence(points: list[Point], verdict: Verdict | None) -> str:
    differences = [d for point in points if (d := point.difference) is not None]
    if differences and not any(differences):
        return f"no difference at all at {output.counted(len(differences), 'probe')} (one seed)"
    if verdict is None:
        probes = output.counted(len(differences), "probe")
        return f"too early to say: {probes} since they parted, {LEAST} are needed (one seed)"
    interval = f"95 % interval {verdict.low:+.4f} to {verdict.high:+.4f}"
    over = f"on average over {output.counted(verdict.probes, 'probe')} since they parted, {interval}; one seed"
    if not verdict.clear:
        return f"not to be told apart: B has {verdict.mean:+.4f} held-out bits a byte ({over})"
    better = "B" if verdict.mean < 0 else "A"
    return f"{better} is better: B has {verdict.mean:+.4f} held-out bits a byte ({over})"


def _lines(shown: dict[str, Any]) -> list[str]:
    fork = shown["parted"]
    lines = []
    for letter, b in zip("AB", shown["branches"], strict=True):
        lines.append(
            f"{letter}        {b['run']}: {b['steps']:,} steps since, policy {', '.join(b['policies']) or '-'}"
        )
    lines.append(f"parted   at step {fork['step']:,} of {fork['name']}")
    for name, (a, b) in shown["differs"].items():
        lines.append(f"differs  {name}: {a} in A, {b} in B")
    lines += ["", *_points(shown["points"]), "", *_arms(shown["arms"]), "", shown["sentence"]]
    return lines + ([f"drawn in {shown['plot']}"] if "plot" in shown else [])


def _points(points: list[dict[str, Any]]) -> list[str]:
    """A table of some of them, evenly chosen, the last one included."""
    chosen = points
    if len(points) > SHOWN:
        chosen = [points[(i + 1) * len(points) // SHOWN - 1] for i in range(SHOWN)]
    head = f"{'steps since':>11}  {'loss A':>8}  {'loss B':>8}  {'held out A':>10}  {'held out B':>10}  {'B - A':>8}"
    return [head] + [
        f"{point['since']:>11,}  {_number(point['ema'][0], 8)}  {_number(point['ema'][1], 8)}  "
        f"{_number(point['held_out'][0], 10)}  {_number(point['held_out'][1], 10)}  "
        f"{_number(point['difference'], 8, '+')}"
        for point in chosen
    ]


def _arms(rows: list[dict[str, Any]]) -> list[str]:
    names = [" / ".join(dict.fromkeys(name for name in row["arm"] if name is not None)) for row in rows]
    wide = max([len("arm"), *map(len, names)])
    head = f"{'arm':<{wide}}  {'share A':>8}  {'share B':>8}  {'held out A':>10}  {'held out B':>10}"
    return [head] + [
        f"{name:<{wide}}  {_share(row['share'][0])}  {_share(row['share'][1])}  "
        f"{_number(row['held_out'][0], 10)}  {_number(row['held_out'][1], 10)}"
        for name, row in zip(names, rows, strict=True)
    ]


def _number(value: float | None, wide: int, sign: str = "") -> str:
    return f"{'-':>{wide}}" if value is None else f"{value:>{sign}{wide}.4f}"


def _share(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{value:>8.1%}"
