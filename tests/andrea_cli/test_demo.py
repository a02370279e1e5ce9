from __future__ import annotations

import sys
from pathlib import Path

import pytest

from andrea_cli import demo
from andrea_rundir.faults import BadConfig


def test_the_texts_are_real_bounded_and_the_same_each_time() -> None:
    texts = demo.gather()
    assert texts.keys() <= demo.LIMITS.keys() and len(texts) >= 2
    for documents in texts.values():
        total = sum(len(text) for text in documents.values())
        assert demo.LEAST_BYTES <= total <= demo.MOST_BYTES
        assert all(len(text.encode()) <= demo.MOST_OF_ONE + 1 for text in documents.values())
        assert all(name and not name.startswith(".") and "/" not in name for name in documents)
    assert demo.gather() == texts
    assert texts["docstrings"].keys().isdisjoint(texts["source"])  # what one holds out, no other trains on


def test_a_python_without_some_texts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda name: str(tmp_path))
    (tmp_path / "broken.py").write_bytes(b"# coding: none\n\xff")
    assert demo.gather().keys() <= {"reference", "read-mes"}
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    monkeypatch.setattr(demo.metadata, "distributions", lambda: iter([]))
    with pytest.raises(BadConfig, match="without the texts"):
        demo.gather()


def test_settings_and_rules_fit_each_other(tmp_path: Path) -> None:
    settings = demo.settings()
    rules = demo.rules({"source": {}, "reference": {}}, tmp_path)
    rules.check_rounds(settings.round_steps)
    assert rules.arms["source"].path == f"{tmp_path}/source"
