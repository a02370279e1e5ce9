"""Power cuts: a sample of the states that `make crash` goes through, and that the simulator sees what it should."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash import mutations, recorded, truth
from crash.explorer import state, states
from crash.mutations import Mutation
from crash.ops import Recording, Sync, Write
from crash.readers import Readers
from crash.truth import Truth
from crash.twin import different

SAMPLE, PARTS = 500, 4
EACH = 2


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    session = tmp_path_factory.getbasetemp()
    return recorded.shared((session.parent if "PYTEST_XDIST_WORKER" in os.environ else session) / "power-cuts")


@pytest.fixture(scope="module")
def known(recording: Recording) -> Truth:
    return truth.learn(recording)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where states are laid: in memory, so that their readers' syncs cost nothing."""
    folder = Path("/dev/shm") / f"{tmp_path.name}-{id(tmp_path)}"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_was_promised_survives_a_power_cut(recording: Recording, known: Truth, place: Path, part: int) -> None:
    n = len(recording.ops) + 1
    readers, count = Readers(place, known), 0
    for cut in states(recording, start=part * n // PARTS, stop=(part + 1) * n // PARTS, each=EACH):
        count += 1
        assert readers.complaints(cut) == [], f"{cut.fate}, after {cut.prefix} deeds"
    assert count >= SAMPLE // PARTS


@pytest.mark.parametrize("mutation", mutations.CHECKPOINT, ids=lambda mutation: mutation.name)
def test_the_simulator_sees_what_is_left_out(
    recording: Recording, known: Truth, place: Path, mutation: Mutation
) -> None:
    assert loss(recording, known, place, mutation)


def loss(recording: Recording, known: Truth, place: Path, mutation: Mutation) -> list[str]:
    """The first complaint about a mutated recording, near where it was mutated."""
    return next(mutations.losses(mutation, recording, known, place), [])


def test_a_policy_is_as_durable_as_the_steps_under_it(recording: Recording, known: Truth, place: Path) -> None:
    """A plan that is never synced costs no policy that was gone over to: it is in the events."""
    unsynced, _ = mutations.without(r"fsync plan\.jsonl").of(recording)
    first = max(mutations.places(unsynced.ops, r"rename policy\.next\.toml .*"))
    saved = next(i for i in mutations.places(unsynced.ops, r"write \d+\.jsonl checkpoint") if i > first)
    readers = Readers(place, known)
    cuts = states(unsynced, start=saved + 1, stop=saved + 2)
    found = [text for cut in cuts for text in readers.complaints(cut)]
    assert not any("nothing can start" in text for text in found)


def test_a_policy_is_durably_on_record_before_its_first_step(recording: Recording) -> None:
    ops, begun = recording.ops, 0
    for i in mutations.places(ops, r"write \d+\.jsonl round"):
        deed = ops[i].deed
        if isinstance(deed, Write) and b'"policy_text":' in deed.data:
            begun += 1
            after = next(op for op in ops[i + 1 :] if op.process == ops[i].process)
            assert isinstance(after.deed, Sync) and after.deed.node == deed.node, after.text
    assert begun


@pytest.mark.parametrize(
    ("fate", "after"),
    [("tail data, all names", r"write \d+\.jsonl snapshot"), ("oldest data, no names", r"write plan\.jsonl")],
)
def test_the_run_goes_on_and_ends_as_its_twin(
    recording: Recording, known: Truth, tmp_path: Path, fate: str, after: str
) -> None:
    """Torn in the first half of its life, nothing kept that was not synced in the second."""
    places = mutations.places(recording.ops, after)
    prefix = places[1] if "snapshot" in after else places[-1]
    assert different(state(recording, prefix + 1, fate).tree, tmp_path / "cut", known) == []
