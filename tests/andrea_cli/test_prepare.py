from __future__ import annotations

import re

from andrea_corpus.prepare import opened
from andrea_rundir.names import RunDir
from harness.commands import Andrea, Wish, snapshot


def test_missing_shards_are_made_again_as_they_were(andrea: Andrea, wish: Wish) -> None:
    made = andrea(*wish.arguments, "--json").json
    before = snapshot(wish.run)
    (wish.run / "data" / f"{made['arms']['a']['fingerprint']}.train.bin").unlink()
    done = andrea("prepare", wish.run)
    assert done.code == 0 and re.search(r"^a +1 +1 +4.4 kB +4,401 +1.00 +\d+.\d\d% +0 +[0-9a-f]{16}$", done.out, re.M)
    assert snapshot(wish.run) == before
    opened(RunDir(wish.run), (wish.run / "policy.toml").read_text())


def test_a_source_that_went_bad_changes_nothing(andrea: Andrea, wish: Wish) -> None:
    assert andrea(*wish.arguments).code == 0
    before = snapshot(wish.run)
    wish.source.write_bytes(b"\xff")
    done = andrea("prepare", wish.run)
    assert done.code == 78 and str(wish.source) in done.err
    assert snapshot(wish.run) == before


def test_a_changed_source_gets_a_shard_of_its_own(andrea: Andrea, wish: Wish) -> None:
    first = andrea(*wish.arguments, "--json").json["arms"]
    wish.source.write_text("something else\n" * 300)
    second = andrea("prepare", wish.run, "--json").json["arms"]
    assert first["a"]["fingerprint"] != second["a"]["fingerprint"] and first["b"] == second["b"]
