from __future__ import annotations

import os

from andrea_rundir.names import RunDir
from harness.commands import Andrea, snapshot


def test_a_kept_checkpoint_survives_its_pruning(andrea: Andrea, made_up: RunDir) -> None:
    source, target = made_up.checkpoint(100), made_up.kept / "step_000100.bin"
    source.write_bytes(b"weights")
    done = andrea("keep", made_up.root, 100)
    assert done.code == 0 and done.out == f"kept: {target}\n"
    assert source.samefile(target)
    assert andrea("keep", made_up.root, 100, "--json").json["path"] == str(target)
    source.unlink()
    assert andrea("keep", made_up.root, 100).code == 0
    assert target.read_bytes() == b"weights"


def test_what_is_not_there_names_what_is(andrea: Andrea, made_up: RunDir) -> None:
    done = andrea("keep", made_up.root, 120)
    assert done.code == 1 and "found:    no checkpoint at all" in done.err
    for step in (0, 50, 100, 150, 1000):
        made_up.checkpoint(step).write_bytes(b"x")
    before = snapshot(made_up.root)
    done = andrea("keep", made_up.root, 120)
    assert done.code == 1 and "no checkpoint of step 120" in done.err
    assert "found:    the nearest are 50, 100, 150" in done.err
    assert snapshot(made_up.root) == before
    os.mkdir(made_up.checkpoint(120))
    assert andrea("keep", made_up.root, 120).code == 1


def test_another_file_of_that_step_is_never_overwritten(andrea: Andrea, made_up: RunDir) -> None:
    made_up.checkpoint(100).write_bytes(b"first")
    assert andrea("keep", made_up.root, 100).code == 0
    made_up.checkpoint(100).unlink()
    made_up.checkpoint(100).write_bytes(b"second")
    done = andrea("keep", made_up.root, 100)
    assert done.code == 1 and "another file is already kept" in done.err
    assert (made_up.kept / "step_000100.bin").read_bytes() == b"first"
