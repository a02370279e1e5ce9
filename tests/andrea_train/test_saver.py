"""What the saver keeps from being pruned; that what it publishes survives is tested in tests/crash."""

from __future__ import annotations

from pathlib import Path

from andrea_rundir.names import RunDir
from andrea_train.saver import Keep, Saver


def test_the_checkpoint_of_a_pivot_stays_until_the_archive_is_complete(tmp_path: Path) -> None:
    """A link in the archive may be gone after a power cut; its last file says that all before it are durable."""
    run = RunDir(tmp_path)
    saver = Saver(run, None, None, None)  # type: ignore[arg-type]
    assert saver._protected([10, 20], Keep(pivot=20)) == [20]
    run.archived(20).mkdir(parents=True)
    (run.archived(20) / "step_000020.bin").write_bytes(b"")
    assert saver._protected([10, 20], Keep(pivot=20)) == [20]
    (run.archived(20) / "policy.toml").write_bytes(b"")
    assert saver._protected([10, 20], Keep(pivot=20)) == []
    saver.close()
