from __future__ import annotations

from andrea_cli.stock import nearest, stock
from andrea_rundir.names import RunDir


def test_every_place_a_checkpoint_may_lie_in(made_up: RunDir) -> None:
    assert stock(made_up) == {}
    archived = made_up.archived(100)
    for folder, names in (
        (made_up.root, ("step_000100.bin", "step_000050.bin", "step_000050.bin.bad")),
        (made_up.kept, ("step_000100.bin", "step_000010.bin", "notes.txt")),
        (archived, ("step_000100.bin", "policy.toml")),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).write_bytes(b"x")
    (made_up.root / "step_000070.bin").mkdir()
    found = stock(made_up)
    assert list(found) == [10, 50, 100]
    assert [path.parent for path in found[100]] == [made_up.root, made_up.kept, archived]


def test_the_nearest_in_words() -> None:
    assert nearest([], 7) == "no checkpoint at all"
    assert nearest([3], 7) == "only 3"
    assert nearest([0, 10, 20, 30], 12) == "the nearest are 0, 10, 20"
