from __future__ import annotations

from typing import Any

from andrea_rundir.names import RunDir
from harness.commands import Andrea, Tell


def audit(step: int, text: str, *, looped: bool = False) -> dict[str, Any]:
    sample = {"prompt": "Once\n", "text": text, "looped": looped, "why": "50% of it repeats" if looped else None}
    return {
        "event": "audit",
        "step": step,
        "score": 100.0 - 50 * looped,
        "alarm": looped,
        "looped": int(looped),
        "samples": [sample],
    }


def test_the_newest_audits_come_first(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    tell(
        [
            audit(0, "babble"),
            audit(10, "first try"),
            {"event": "step", "step": 11},
            audit(10, "second"),
            audit(20, "la la", looped=True),
        ]
    )
    made_up.checkpoint(10).write_bytes(b"")
    done = andrea("samples", made_up.root, "--last", 2)
    assert done.code == 0
    assert done.out.splitlines() == [
        "step 20: score 50, ALARM, no longer on disk",
        "  [runs in circles: 50% of it repeats] Once\\n | la la",
        f"step 10: score 100, {made_up.checkpoint(10)}",
        "  Once\\n | second",
    ]
    found = andrea("samples", made_up.root, "--json").json["audits"]
    assert [one["step"] for one in found] == [20] and found[0]["samples"][0]["text"] == "la la"
    assert andrea("samples", made_up.root, "--step", 0, "--json").json["audits"][0]["samples"][0]["text"] == "babble"


def test_control_characters_do_not_reach_the_terminal(andrea: Andrea, made_up: RunDir, tell: Tell) -> None:
    tell([audit(0, "\x1b[2J\r\ttext\u202e")])
    assert r"\x1b[2J\r\ttext\u202e" in andrea("samples", made_up.root).out


def test_without_audits(andrea: Andrea, made_up: RunDir) -> None:
    assert "no audits yet" in andrea("samples", made_up.root).out
    done = andrea("samples", made_up.root, "--step", 5)
    assert done.code == 1 and "no audit of step 5" in done.err
