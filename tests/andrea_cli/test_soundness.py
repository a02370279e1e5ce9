from __future__ import annotations

import pytest

from andrea_cli.soundness import MOST, Section, lasting


def section(*whats: str) -> Section:
    made = Section("files")
    for what in whats:
        made.find(what, "here")
    return made


@pytest.mark.parametrize(("busy", "looks", "left"), [(True, 2, ["b"]), (False, 1, ["a", "b"])])
def test_beside_a_process_at_work_only_what_lasts_counts(
    monkeypatch: pytest.MonkeyPatch, busy: bool, looks: int, left: list[str]
) -> None:
    monkeypatch.setattr("andrea_cli.soundness.PAUSE_SECONDS", 0.0)
    seen = [section("a", "b"), section("b", "c")]
    found = lasting(lambda: seen.pop(0), lambda: busy)
    assert [finding.what for finding in found.findings] == left
    assert 2 - len(seen) == looks


def test_what_is_sound_is_looked_at_once() -> None:
    seen = [section()]
    assert lasting(lambda: seen.pop(), lambda: True).findings == []


def test_findings_beyond_a_bound_are_counted() -> None:
    found = section(*map(str, range(MOST + 7)))
    assert (len(found.findings), found.more) == (MOST, 7)
