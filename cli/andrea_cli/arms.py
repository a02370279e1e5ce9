"""The arms table: what the curriculum knows of each source, as `.state.json` has it.

Reads only. Standard library and `andrea_rundir.sidecars`.
"""

from __future__ import annotations

from typing import Any

from andrea_rundir import sidecars
from andrea_rundir.names import RunDir

COLUMNS = ("pulls", "share", "floor", "cap", "reward", "epochs")


def known(run: RunDir) -> dict[str, Any] | None:
    """Step, policy, phase and, by arm, the figures of COLUMNS; None where no proxy has written them (yet)."""
    try:
        state = sidecars.load(run.state)
        if state is None:
            return None
        arms = {
            str(arm): {name: float(figures[name]) for name in COLUMNS} | {"pulls": int(figures["pulls"])}
            for arm, figures in sorted(state["arms"].items())
        }
        return {
            "step": int(state["step"]),
            "policy": str(state["policy"]),
            "learner": str(state["learner"]),
            "phase": str(state["phase"]["name"]),
            "arms": arms,
            "retired": sorted({str(arm["arm"]) for arm in state["retired"]}),
        }
    except (sidecars.Unusable, KeyError, TypeError, ValueError, AttributeError):
        return None


def lines(found: dict[str, Any]) -> list[str]:
    """A heading, a line an arm; shares are of pulls, the reward is an EMA of progress in bits a byte."""
    arms: dict[str, dict[str, float]] = found["arms"]
    wide = max([len("arm"), *map(len, arms)])
    phase = f", phase {found['phase']}" if found["phase"] else ""
    shown = [
        f"policy {found['policy']} ({found['learner']}{phase}) at step {found['step']:,}",
        f"{'arm':<{wide}}  {'pulls':>9}  {'share':>6}  {'floor':>6}  {'cap':>6}  {'reward':>8}  {'epochs':>7}",
    ]
    for arm, figures in arms.items():
        shown.append(
            f"{arm:<{wide}}  {figures['pulls']:>9,}  {figures['share']:>6.1%}  {figures['floor']:>6.1%}  "
            f"{figures['cap']:>6.1%}  {figures['reward']:>8.4f}  {figures['epochs']:>7.2f}"
        )
    if found["retired"]:
        shown.append(f"retired (never pulled): {', '.join(found['retired'])}")
    return shown
