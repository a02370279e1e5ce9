from __future__ import annotations

from typing import Any

import pytest

from andrea_cli import lineage
from andrea_cli.lineage import Ancestor, ancestors, parted
from andrea_rundir.faults import BadConfig
from andrea_rundir.names import RunDir


def forked(run_id: str, step: int, earlier: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"id": run_id, "name": run_id.upper(), "step": step, "digest": "d", "earlier": earlier}


def test_where_two_branches_parted() -> None:
    root = ancestors("p", "P", None)
    one, two = ancestors("a", "A", forked("p", 40)), ancestors("b", "B", forked("p", 60))
    assert parted(one, two) == parted(two, one) == Ancestor("p", "P", 40)
    assert parted(root, one) == parted(one, root) == Ancestor("p", "P", 40)
    assert parted(one, one) == Ancestor("a", "A", None)


def test_a_branch_of_a_branch_shares_no_more_than_it_took() -> None:
    child = forked("p", 40)
    late, early = ancestors("c", "C", forked("a", 70, child)), ancestors("e", "E", forked("a", 30, child))
    assert parted(late, ancestors("a", "A", child)) == Ancestor("a", "A", 70)
    assert parted(late, early) == Ancestor("a", "A", 30)
    assert parted(late, ancestors("p", "P", None)) == Ancestor("p", "P", 40)
    assert parted(early, ancestors("p", "P", None)) == Ancestor("p", "P", 30)


def test_runs_that_began_with_one_file_are_related_and_others_are_not() -> None:
    file = {"file": "/x/step_000100.bin", "step": 100, "digest": "ab" * 32}
    one, two = ancestors("a", "A", file), ancestors("b", "B", {**file, "file": "/y/copy.bin"})
    assert parted(one, two) == Ancestor("ab" * 32, "/x/step_000100.bin", 100)
    assert parted(one, ancestors("c", "C", None)) is None


def test_written_and_read(made_up: RunDir) -> None:
    assert lineage.read(made_up) is None
    lineage.write(made_up, "fork", id="p", step=40)
    assert lineage.read(made_up) == {"schema": 1, "made_by": "fork", "id": "p", "step": 40}
    for text in ("junk", "[]", '{"schema": 2}', "{}"):
        made_up.lineage.write_text(text)
        with pytest.raises(BadConfig, match="cannot be read"):
            lineage.read(made_up)
