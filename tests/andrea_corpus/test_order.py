from collections import Counter
from itertools import permutations
from math import factorial

from hypothesis import given
from hypothesis import strategies as st

from andrea_corpus.order import permute, stream_seed, window_of

seeds = st.integers(-(2**70), 2**70)
fingerprints = st.text(max_size=20)
epochs = st.integers(0, 10**9)


@given(seeds, fingerprints, epochs, st.integers(1, 300))
def test_it_is_a_permutation(seed: int, fingerprint: str, epoch: int, n: int) -> None:
    assert sorted(permute(seed, fingerprint, epoch, n, i) for i in range(n)) == list(range(n))


def test_it_is_a_permutation_at_a_size_that_is_no_square() -> None:
    n = 20_011
    assert len({permute(1, "a", 0, n, i) for i in range(n)}) == n


@given(seeds, fingerprints, epochs, st.integers(1, 2**60), st.data())
def test_images_stay_in_range_and_differ(seed: int, fingerprint: str, epoch: int, n: int, data: st.DataObject) -> None:
    i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    a, b = permute(seed, fingerprint, epoch, n, i), permute(seed, fingerprint, epoch, n, j)
    assert 0 <= a < n
    assert 0 <= b < n
    assert (a == b) == (i == j)


@given(seeds, fingerprints, st.integers(1, 60), st.integers(0, 10**6))
def test_every_epoch_visits_each_window_once(seed: int, fingerprint: str, n: int, epoch: int) -> None:
    first = epoch * n
    assert sorted(window_of(seed, fingerprint, c, n) for c in range(first, first + n)) == list(range(n))


def test_seed_fingerprint_and_epoch_each_change_the_order() -> None:
    orders = [
        tuple(permute(seed, fingerprint, epoch, 100, i) for i in range(100))
        for seed in (1, 2, 12)
        for fingerprint in ("a", "b", "2a")
        for epoch in (0, 1)
    ]
    assert len(set(orders)) == len(orders)


def test_the_order_is_fixed_for_ever() -> None:
    """A run in flight must not change its data order with a new version: these numbers never change."""
    assert [permute(1337, "0123456789abcdef", 0, 10, i) for i in range(10)] == [6, 9, 8, 4, 0, 7, 1, 5, 3, 2]
    big = [permute(1337, "0123456789abcdef", 3, 10**9, i) for i in (0, 1, 999_999_999)]
    assert big == [425707562, 136300155, 449201146]
    assert stream_seed(1337, "sample", 100) == 8731916693514007557


def test_all_orders_of_few_windows_are_about_equally_likely() -> None:
    for n in (2, 3, 4, 5):
        draws = 20 * factorial(n)
        seen = Counter(tuple(permute(seed, "x", 0, n, i) for i in range(n)) for seed in range(draws))
        chi2 = sum((seen[p] - 20) ** 2 / 20 for p in permutations(range(n)))
        degrees = factorial(n) - 1
        assert chi2 / degrees < 1 + 5 * (2 / degrees) ** 0.5, (n, chi2 / degrees)


def test_neighbours_do_not_stay_neighbours() -> None:
    n = 10_000
    steps = [(permute(5, "x", 0, n, i + 1) - permute(5, "x", 0, n, i)) % n for i in range(n - 1)]
    assert max(Counter(steps).values()) < 12
    low = sum(permute(5, "x", 0, n, i) < n // 2 for i in range(n // 2))
    assert abs(low - n // 4) < 5 * (n / 16) ** 0.5


@given(seeds, st.text(max_size=20), st.integers(0, 10**9))
def test_stream_seeds_are_63_bits_and_differ_by_purpose_and_step(seed: int, purpose: str, step: int) -> None:
    drawn = {
        stream_seed(seed, purpose, step),
        stream_seed(seed, purpose + "1", step),
        stream_seed(seed, purpose, step + 1),
    }
    assert len(drawn) == 3
    assert all(0 <= one < 2**63 for one in drawn)
