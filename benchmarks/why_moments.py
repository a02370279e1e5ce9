"""Why a checkpoint holds m and v: the same run resumed with them and with zeros in their place.

Trains the demo model to step S, then goes on twice from that one checkpoint for a number of steps, on the same data in
the same order. Prints a table and, given a name, draws the two loss curves. Uses the programs as an operator would.

    python benchmarks/why_moments.py --from-step 600 --steps 100 --plot docs/img/why-moments.svg
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from andrea_rundir.events import read
from andrea_rundir.names import RunDir

BIN = Path(sys.executable).parent


def train(run: RunDir, until: int) -> None:
    subprocess.run([BIN / "andrea-train", "--run", run.root, "--until-step", str(until)], check=True)


def forget_moments(path: Path) -> None:
    """Zeros for m and v, as a file that holds only weights would leave them; its digest line goes with them."""
    raw = np.fromfile(path, dtype="<f4")
    n = int(raw[1:2].view("<i4")[0])
    raw[2 + n :] = 0
    raw.tofile(path)
    sums = path.parent / "SHA256SUMS"
    sums.write_text("".join(line + "\n" for line in sums.read_text().splitlines() if path.name not in line))


def losses(run: RunDir, after: int) -> dict[int, float]:
    return {e["step"]: e["loss"] for e in read(run.events) if e["event"] == "step" and e["step"] > after}


def draw(path: Path, curves: dict[str, dict[int, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "andrea"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for name, curve in curves.items():
        axes.plot(list(curve), list(curve.values()), label=name, linewidth=1.2)
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a byte")
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--from-step", type=int, default=600)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    start, end = args.from_step, args.from_step + args.steps
    with tempfile.TemporaryDirectory() as folder:
        kept, zeroed = RunDir(Path(folder) / "kept"), RunDir(Path(folder) / "zeroed")
        subprocess.run([BIN / "andrea", "init", kept.root, "--demo"], check=True)
        train(kept, start)
        shutil.copytree(kept.root, zeroed.root)
        forget_moments(zeroed.checkpoint(start))
        train(kept, end)
        train(zeroed, end)
        curves = {"m and v kept": losses(kept, start), "m and v zeroed": losses(zeroed, start)}
    with_them, without = (np.array(list(curve.values())) for curve in curves.values())
    print("| steps after resume | m and v kept | m and v zeroed | difference |")
    print("|---|---|---|---|")
    for first, last in ((1, 5), (6, 10), (11, 20), (21, 50), (51, 100)):
        if last <= args.steps:
            a, b = with_them[first - 1 : last].mean(), without[first - 1 : last].mean()
            print(f"| {first} to {last} | {a:.3f} | {b:.3f} | {b - a:+.3f} |")
    if args.plot:
        draw(args.plot, curves)


if __name__ == "__main__":
    main()
