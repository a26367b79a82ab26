"""A shared pool of training rows: the draw, its division, and the rows that stay unchanged."""

from __future__ import annotations

import numpy as np
import pytest

import motet
from motet.data import Pathological, from_arrays
from motet.data._shared import balanced
from motet.errors import DataError, RequestError


@pytest.fixture(scope="module")
def digits():
    return motet.data.load("digits", partition=Pathological(clients=8, classes=2), seed=0)


def rows(federation, client, split=0):
    return set(federation.rows.rows(federation.clients.index(client), split).tolist())


def pool_of(before, after):
    """Return the rows that some client has gained."""
    gained = [rows(after, client) - rows(before, client) for client in before.clients]
    return set().union(*gained)


def test_the_pool_is_a_share_of_the_training_rows_with_equally_many_of_each_class(digits):
    shared = digits.share(beta=0.1, donors="give")
    total = sum(digits.sizes().values())
    pool = rows(shared, "0") - rows(digits, "0")
    pool |= pool_of(digits, shared)
    assert len(pool) == int(total * 0.1 + 0.5)
    counts = np.bincount(digits.y.take(np.array(sorted(pool))), minlength=10)
    assert counts.max() - counts.min() <= 1


def test_every_client_gets_the_whole_pool_and_keeps_its_own_rows(digits):
    shared = digits.share(beta=0.05)
    pool = pool_of(digits, shared)
    for client in digits.clients:
        assert rows(shared, client) == rows(digits, client) | pool
        assert shared.size(client, "train") == len(rows(shared, client))  # no row twice


def test_donors_may_give_their_rows_away(digits):
    """Then a client holds a row of the pool only if it was drawn for it."""
    shared = digits.share(beta=0.3, alpha=0.5, donors="give")
    kept = digits.share(beta=0.3, alpha=0.5)
    for client in digits.clients:
        gone = rows(digits, client) - rows(shared, client)
        assert gone
        assert rows(kept, client) >= rows(digits, client)


def test_every_client_draws_its_own_part_of_the_pool(digits):
    whole, half = (digits.share(beta=0.2, alpha=alpha, donors="give") for alpha in (1.0, 0.5))
    pool = pool_of(digits, whole)
    parts = {c: rows(half, c) & pool for c in digits.clients}
    assert {len(part) for part in parts.values()} == {int(len(pool) * 0.5 + 0.5)}
    assert len({frozenset(part) for part in parts.values()}) == len(parts)


def test_validation_and_test_rows_are_neither_drawn_nor_moved(digits):
    shared = digits.share(beta=1.0)
    held = set()
    for client in digits.clients:
        for split in (1, 2):
            assert rows(shared, client, split) == rows(digits, client, split)
            held |= rows(digits, client, split)
    assert not held & set().union(*(rows(shared, client) for client in digits.clients))


def test_no_example_is_copied(digits):
    shared = digits.share(beta=0.5)
    assert shared.x is digits.x
    assert shared.y is digits.y


def test_an_empty_pool_changes_nothing(digits):
    assert digits.share(beta=0.0).hash == digits.hash


def test_a_small_share_is_at_least_one_row():
    data = from_arrays({c: (np.ones((4, 2)), np.arange(4) % 2) for c in "ab"}, classes=2)
    assert data.share(beta=0.01, alpha=0.01).sizes() != data.sizes()


def test_a_client_that_gives_all_it_has_still_trains():
    data = from_arrays({c: (np.ones((2, 2)), np.arange(2)) for c in "abc"}, classes=2)
    shared = data.share(beta=1.0, alpha=0.2, donors="give")
    assert min(shared.sizes().values()) >= 1
    shared.check()


def test_seeds_and_nothing_else_decide_the_draw(digits):
    assert digits.share(seed=3).hash == digits.share(seed=3).hash
    assert digits.share(seed=3).hash != digits.share(seed=4).hash
    backwards = digits.select(reversed(digits.clients))
    for client in digits.clients:
        one, other = (rows(d.share(seed=3, alpha=0.5), client) for d in (digits, backwards))
        assert one == other


def test_classes_that_run_out_leave_their_places_to_the_others():
    assert balanced(9, np.array([10, 1, 10])).tolist() == [4, 1, 4]
    assert balanced(21, np.array([10, 1, 10])).tolist() == [10, 1, 10]
    assert balanced(2, np.array([5, 5, 5])).tolist() == [1, 1, 0]
    assert balanced(0, np.array([5, 5])).tolist() == [0, 0]


@pytest.mark.parametrize("y", [np.linspace(0, 1, 6), np.zeros((6, 3), np.int64)])
def test_values_and_sequences_have_no_classes_to_balance(y):
    data = from_arrays({c: (np.ones((6, 2)), y) for c in "ab"})
    shared = data.share(beta=0.5, donors="give")
    assert sum(shared.sizes().values()) == 6 + 2 * 6  # what is left, and the pool twice


def test_a_manifest_repeats_it(digits):
    shared = digits.share(beta=0.1, alpha=0.5, donors="give", seed=7)
    again = motet.data.rebuild(shared.manifest())
    assert again.hash == shared.hash
    assert shared.manifest()["steps"] == [
        {"share": {"beta": 0.1, "alpha": 0.5, "donors": "give", "seed": 7}}
    ]


def test_common_training_rows_pass_the_check_and_test_rows_among_them_do_not(digits):
    shared = digits.share(beta=0.1)
    assert shared.check() is shared
    rows_of = shared.rows
    leaked = rows_of.index.copy()
    start = rows_of.offsets[2]  # the first client's test rows
    leaked[0] = leaked[start]
    broken = motet.data._federation.replace(
        shared, rows=motet.data._assignment.Assignment(leaked, rows_of.offsets)
    )
    with pytest.raises(DataError, match="belongs to more than one client or split"):
        broken.check()


@pytest.mark.parametrize("knobs", [{"beta": -0.1}, {"beta": 1.1}, {"alpha": 0.0}, {"alpha": 2.0}])
def test_shares_beyond_0_and_1_are_refused(digits, knobs):
    with pytest.raises(RequestError, match="beta= is a share of the training rows"):
        digits.share(**knobs)


def test_other_donors_are_refused(digits):
    with pytest.raises(RequestError, match='donors= must be "keep" or "give"'):
        digits.share(donors="lend")
