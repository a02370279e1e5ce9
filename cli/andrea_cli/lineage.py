"""Where a run comes from, `lineage.json`, and where two runs parted.

Writes `lineage.json` of a run that is being made. Standard library, `andrea_rundir`; the format is in
docs/run-directory.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from andrea_rundir import jsontext, shapes
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir
from andrea_rundir.publish import publish

SCHEMA = 1


def write(run: RunDir, made_by: str, /, **facts: object) -> None:
    """Note where a new run comes from."""
    content = {"schema": SCHEMA, "made_by": made_by, **facts}
    publish(run.lineage, (json.dumps(content, indent=1) + "\n").encode())


def read(run: RunDir) -> dict[str, Any] | None:
    """What `write` noted; None for a run that began from nothing. BadConfig when it cannot be read."""
    try:
        content = jsontext.loads(run.lineage.read_bytes())
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this version knows {SCHEMA}")
        _check(content)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise BadConfig("the lineage cannot be read", where=str(run.lineage), found=str(error)) from None
    return dict(content)


_SHAPE = {"step": shapes.is_step, "digest": shapes.is_text, "id": shapes.is_text, "name": shapes.is_text}


def _check(content: dict[str, Any] | None) -> None:
    """ValueError unless it, and every earlier one in it, says how it was made and has fields of the right types."""
    while content is not None:
        if not isinstance(content, dict) or not {"made_by", "step"} <= content.keys():
            raise ValueError("a lineage without its fields")
        for name, test in _SHAPE.items():
            if name in content and not test(content[name]):
                raise ValueError(f"its {name} cannot be used")
        content = content.get("earlier")


@dataclass(frozen=True)
class Ancestor:
    """A run that shares the history of another up to `step`; None: it is that run itself."""

    id: str
    """The run's id, or the digest of the file that history begins with."""
    name: str
    step: int | None


def ancestors(run_id: str, name: str, lineage: dict[str, Any] | None) -> list[Ancestor]:
    """The run itself, then what it came from, newest first."""
    found = [Ancestor(run_id, name, None)]
    while lineage is not None:
        step = lineage["step"] if found[-1].step is None else min(lineage["step"], found[-1].step)
        found.append(Ancestor(lineage.get("id") or lineage["digest"], lineage.get("name") or lineage["file"], step))
        lineage = lineage.get("earlier")
    return found


def parted(one: list[Ancestor], other: list[Ancestor]) -> Ancestor | None:
    """The newest ancestor that two runs have in common, with the last step that both have of it; None: unrelated.

    `step` is None only when both are the same run.
    """
    theirs = {ancestor.id: ancestor for ancestor in other}
    for mine in one:
        if (match := theirs.get(mine.id)) is not None:
            steps = [step for step in (mine.step, match.step) if step is not None]
            return Ancestor(mine.id, mine.name, min(steps, default=None))
    return None
