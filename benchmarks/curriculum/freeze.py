"""How the constants of `slope` were chosen, and those of the learners it is compared with: on family A alone.

`python -m curriculum.freeze` in `benchmarks/` prints mean (worst) per cent of the gap closed in the four cells of A
for every candidate. Families C and D play no part here.
"""

from __future__ import annotations

from andrea_proxy.learners import Learner
from andrea_proxy.learners.curve import Curve
from andrea_proxy.learners.slope import Slope
from andrea_proxy.learners.ucb1 import Ucb1
from curriculum.contenders import Exp3S, LossLevel
from curriculum.simulation import NAMES
from curriculum.suite import CELLS, Maker, closed


def slope(exponent: float, transfer: float, fade: float) -> Maker:
    """`slope` with other constants."""
    curve = type("OtherCurve", (Curve,), {"__slots__": (), "fade": fade})
    kind = type("OtherSlope", (Slope,), {"exponent": exponent, "transfer": transfer, "curve": curve})
    return lambda windows: kind()


def other(kind: type[Learner], *arguments: object, **constants: float) -> Maker:
    """A learner with other class constants."""
    changed = type(f"Other{kind.__name__}", (kind,), dict(constants))
    return lambda windows: changed(*arguments)


CANDIDATES: dict[str, Maker] = {
    f"slope exponent {e:g} transfer {t:g} fade {f:g}": slope(e, t, f)
    for e, t, f in (
        *((e, 0.32, 1.0) for e in (1.0, 2.0, 3.0, 4.0)),
        *((3.0, t, 1.0) for t in (0.0, 0.16, 0.48, 0.8, 1.6)),
        *((3.0, 0.32, f) for f in (0.0, 0.5, 2.0)),
        *((3.0, t, 0.0) for t in (0.0, 0.8)),
    )
}
CANDIDATES |= {
    f"ucb1 C {c:g} rest {r:g}": other(Ucb1, 1, bonus=c, rest=r) for c in (0.0, 0.05, 0.2, 1.0) for r in (0.1, 0.3)
}
CANDIDATES |= {f"exp3s rate {r:g}": other(Exp3S, NAMES, rate=r) for r in (0.003, 0.01, 0.03, 0.1, 0.3)}
CANDIDATES |= {f"loss-level keep {k:g}": other(LossLevel, keep=k) for k in (0.5, 0.9)}


def main() -> None:
    """One line a candidate, as they are done."""
    cells = [cell for cell in CELLS if cell.family == "A"]
    print(f"| candidate | {' | '.join(str(cell) for cell in cells)} | mean |")
    print("|---|" + "---|" * (len(cells) + 1))
    for name, maker in CANDIDATES.items():
        results = [closed(cell, maker) for cell in cells]
        mean = sum(float(x.mean()) for x in results) / len(results)
        print(f"| {name} | {' | '.join(f'{x.mean():.1f} ({x.min():.0f})' for x in results)} | {mean:.1f} |", flush=True)


if __name__ == "__main__":
    main()
