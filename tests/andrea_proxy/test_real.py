"""The real suite: its texts are the same each time, its runs are paired, what was finished is not done again."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from curriculum import sources
from curriculum.real import record, recorded
from curriculum.simulation import BATCH, ROUND, play
from curriculum.tables import FIGURES, LEARNERS_SHOWN, SEEDS, Result, difference, report, worst_change
from curriculum.training import Training, prepared

from andrea_proxy.learners import Learner, StepRecord
from andrea_proxy.learners.uniform import Uniform
from andrea_rundir.faults import BadConfig

TEXTS = {
    "shuffled": [sources.shuffled("the quick brown fox " * 1000)],
    "templated": [sources.templated(20_000)],
    "wordnet": [f"{i}: a number between {i - 1} and {i + 1}\n" for i in range(500)],
}


def test_a_part_is_a_part_whatever_the_order_and_the_repeats() -> None:
    documents = [f"document {i}, é\n" * (i % 7) for i in range(400)]
    size = sum(len(text.encode()) for text in set(documents))
    chosen = sources.part(documents)
    assert chosen == sources.part(reversed(documents * 2))
    assert 0 <= size // sources.PART - sum(len(text.encode()) for text in chosen) <= 1
    assert all(text in documents for text in chosen[:-1]) and any(text.startswith(chosen[-1]) for text in documents)


def test_texts_are_split_as_they_are_made() -> None:
    assert sources.fortunes("one\n100 %\n%\ntwo\n") == ["one\n100 %\n", "two\n"]
    assert sources.entries("head\n\n   body\n\nnext\n\n   more\n") == ["head\n\n   body\n", "next\n\n   more\n"]
    assert sources.meanings("  1 licence\n00 29 n 02 abstract_entity 0 | what is not\n") == [
        "abstract entity: what is not\n"
    ]


def test_decoys() -> None:
    text = "".join(chr(97 + i % 26) for i in range(5200))
    mixed = sources.shuffled(text)
    assert mixed != text and sorted(mixed) == sorted(text) and mixed == sources.shuffled(text)
    lines = sources.templated(9_000).splitlines()
    assert len(set(lines)) > 80 and len({line.split()[0] for line in lines}) == 1


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = sources.ORIGINS["wordnet"]
    monkeypatch.setattr(sources, "ORIGINS", {"wordnet": replace(origin, package="no-such-package")})
    with pytest.raises(BadConfig) as caught:
        sources.gather()
    assert caught.value.todo.endswith(" no-such-package")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    torch.set_num_threads(1)
    return prepared(TEXTS, tmp_path_factory.mktemp("real"))


def test_a_run_learns_and_is_the_same_for_its_seed(shards) -> None:  # type: ignore[no-untyped-def]
    def go(seed: int) -> dict[str, float]:
        training = Training(shards, seed)
        before = training.measure()
        assert all(7.5 < bits < 9.0 for bits in before.values())
        assert sum(play(training, Uniform(), 25).values()) == 25 * BATCH
        after = training.measure()
        assert all(after[arm] < before[arm] - 1.0 for arm in before)
        return after

    assert go(1) == go(1) != go(2)


class Watching(Learner):
    """Notes what it has seen whenever it is asked."""

    name = "watching"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[StepRecord] = []
        self.asked: list[int] = []

    def observe(self, record: StepRecord) -> None:
        self.seen.append(record)

    def weights(self, arms, priors, epochs):  # type: ignore[no-untyped-def]
        self.asked.append(len(self.seen))
        return dict.fromkeys(arms, 1.0)


class Flat:
    """A world where nothing is learned, of two-byte tokens."""

    windows = dict.fromkeys("abcd", 20.0)
    tokens = 4

    def train(self, step, counts, cursors):  # type: ignore[no-untyped-def]
        return {arm: (count, 1.0, 8 * count) for arm, count in counts.items()}


def test_the_plan_of_a_round_has_seen_all_but_the_last_two() -> None:
    learner = Watching()
    pulls = play(Flat(), learner, 5 * ROUND)
    assert learner.asked == [ROUND, 2 * ROUND, 3 * ROUND]
    assert [record.step for record in learner.seen] == list(range(1, 3 * ROUND + 1))
    assert learner.seen[-1].epochs["a"] == pytest.approx((3 * ROUND - 1) * BATCH / 4 / 20.0, abs=0.06)
    assert sum(pulls.values()) == 5 * ROUND * BATCH


def result(learner: str, seed: int, level: float) -> Result:
    arms = {"shuffled": 5.0, "templated": 1.0, "wordnet": level, "foldoc": level + 1.0}
    return Result(learner, seed, dict.fromkeys(arms, 8.0), arms, dict.fromkeys(arms, 5), dict.fromkeys(arms, 0.5), 60.0)


def test_what_was_finished_is_read_back_a_torn_line_and_another_setting_are_not(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert recorded(path, "x") == {}
    record(path, "x", result("slope", 1, 2.0))
    record(path, "other", result("slope", 2, 2.0))
    whole = path.read_bytes()
    path.write_bytes(whole + whole.strip().splitlines()[0][:50])
    record(path, "x", result("slope", 3, 2.0))
    assert recorded(path, "x") == {("slope", seed): result("slope", seed, 2.0) for seed in (1, 3)}


def test_the_tables_pair_by_seed() -> None:
    offsets = dict(zip(LEARNERS_SHOWN, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), strict=True))
    results = {(n, s): result(n, s, 2.0 + offset + s) for n, offset in offsets.items() for s in SEEDS}
    assert difference(results, "slope", "uniform", FIGURES["mean of real"]) == "-0.1000 ± 0.0000"
    assert difference(results, "slope", "uniform", FIGURES["mean of all"]) == "-0.0500 ± 0.0000"
    assert FIGURES["worst real"](results["slope", 1]) == 4.0
    assert worst_change(results, "uniform", "slope") == "wordnet +2.00 %"
    results["slope", 1] = result("slope", 1, 2.5 + 1)
    assert difference(results, "slope", "uniform", FIGURES["worst real"]) == "+0.0000 ± 0.2776"
    said = "\n".join(report(results))
    assert "8.00 before the first step" in said and "25.0 (0.5)" in said and "30 runs, 30 minutes" in said
