"""A run's seed is its own: every stream, and with it the order of its text, hangs on it.

Reads only. Imports this package.
"""

from __future__ import annotations

from andrea_rundir.config import RunConfig
from andrea_rundir.events import starts
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir


def refuse_another(run: RunDir, settings: RunConfig) -> None:
    """BadConfig when the run has started with another seed; a fork, which has an id of its own, may have another."""
    begun = [event.get("config", {}).get("run") for _, event in starts(run.events)]
    seeds = [one.get("seed") for one in begun if isinstance(one, dict) and one.get("id") == settings.run.id]
    if seeds and seeds[-1] != settings.run.seed:
        raise BadConfig(
            "a run keeps its seed: windows would come twice and others never",
            where=f"{run.run_toml}: run.seed",
            found=str(settings.run.seed),
            expected=f"{seeds[-1]}, as at its last start",
            todo=f"set it back, or branch off: andrea fork {run.root} NEW --step N --set run.seed={settings.run.seed}",
        )
