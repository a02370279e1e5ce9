"""`make bench-curriculum`: every learner in every cell of the synthetic suite, and which of the bars are met.

Prints Markdown; ends with 1 when a bar is missed. About half an hour on one core.
"""

from __future__ import annotations

import sys

from curriculum.families import Floats
from curriculum.suite import CELLS, ENVIRONMENTS, LEARNERS, Cell, closed, lead, yardstick

LEAST_CLOSED = 35.0
LEAST_WINS = 37
WORST = -25.0
OVER_PLAIN = 10.0


def missed(cell: Cell, results: dict[str, Floats]) -> list[str]:
    """The bars that `slope` misses in a cell, in words."""
    ours, complaints = results["slope"], []
    if ours.mean() < LEAST_CLOSED:
        complaints.append(f"{cell}: closes {ours.mean():.1f} % of the gap, not {LEAST_CLOSED:.0f}")
    if (wins := int((ours > 0.0).sum())) < LEAST_WINS:
        complaints.append(f"{cell}: better than uniform in {wins} environments, not {LEAST_WINS}")
    if ours.min() < WORST:
        complaints.append(f"{cell}: worst environment {ours.min():.1f} %, below {WORST:.0f}")
    for name, theirs in results.items():
        if name == "slope":
            continue
        mean, half = lead(ours, theirs)
        if mean - half <= 0.0:
            complaints.append(f"{cell}: against {name} {mean:+.1f} ± {half:.1f}")
        if name == "plain slope" and mean < OVER_PLAIN:
            complaints.append(f"{cell}: {mean:.1f} points over plain slope, not {OVER_PLAIN:.0f}")
    return complaints


def main() -> int:
    """Runs the cells one after the other, printing each as it is done."""
    print("Mean per cent of the gap closed (worst environment; environments better than uniform, of 40):\n")
    print(f"| family pulls noise | {' | '.join(LEARNERS)} |")
    print("|---|" + "---|" * len(LEARNERS))
    complaints, leads = [], []
    for cell in CELLS:
        results = {name: closed(cell, maker) for name, maker in LEARNERS.items()}
        entries = (f"{x.mean():.1f} ({x.min():.0f}; {int((x > 0.0).sum())})" for x in results.values())
        print(f"| {cell} | {' | '.join(entries)} |", flush=True)
        pairs = [lead(results["slope"], theirs) for name, theirs in results.items() if name != "slope"]
        leads.append(f"| {cell} | " + " | ".join(f"{mean:+.1f} ± {half:.1f}" for mean, half in pairs) + " |")
        complaints += missed(cell, results)
    print("\nLead of slope in points, with the paired 95 % interval:\n")
    print(f"| family pulls noise | {' | '.join(name for name in LEARNERS if name != 'slope')} |")
    print("|---|" + "---|" * (len(LEARNERS) - 1))
    print("\n".join(leads))
    doubt = max(yardstick(c.family, i, c.horizon).doubt for c in CELLS for i in range(ENVIRONMENTS))
    print(f"\nThe optimum is known to {100.0 * doubt:.4f} % of the gap. Bars missed: {len(complaints) or 'none'}.")
    print("\n".join(f"- {line}" for line in complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
