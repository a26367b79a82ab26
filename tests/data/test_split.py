"""How one client's rows are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet._core.keys import Key
from motet.data import IID, Latent, Natural, Pathological, Raw, Split
from motet.data._divide import allot, share_held_out
from motet.errors import RequestError

KEY = Key(0)


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (1, (1, 0, 0)),
        (2, (1, 0, 1)),
        (3, (1, 1, 1)),
        (5, (3, 1, 1)),
        (10, (6, 2, 2)),
        (13, (7, 3, 3)),
    ],
)
def test_a_fifth_of_few_rows_is_what_one_would_write_down(rows, sizes):
    cut = Split(val=0.2, test=0.2).cut(np.zeros(rows), KEY)
    assert tuple(len(part) for part in cut) == sizes


def test_every_split_keeps_the_class_mix_where_numbers_allow():
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    cut = Split(val=0.1, test=0.2).cut(labels, KEY)
    assert np.bincount(labels[cut.train]).tolist() == [35, 21, 14]
    assert np.bincount(labels[cut.val]).tolist() == [5, 3, 2]
    assert np.bincount(labels[cut.test]).tolist() == [10, 6, 4]


@settings(max_examples=80, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    val=st.floats(0, 0.49),
    test=st.floats(0, 0.49),
    seed=st.integers(0, 10**6),
)
def test_a_cut_loses_no_row_and_leaves_something_to_train_on(labels, val, test, seed):
    cut = Split(val=val, test=test).cut(np.array(labels), Key(seed))
    assert sorted(np.concatenate(cut).tolist()) == list(range(len(labels)))
    assert len(cut.train) >= 1
    assert (len(cut.test) == 0) == (test == 0 or len(labels) == 1)
    again = Split(val=val, test=test).cut(np.array(labels), Key(seed))
    assert all(np.array_equal(one, two) for one, two in zip(cut, again, strict=True))


@pytest.mark.parametrize("shares", [{"val": -0.1}, {"test": 1.0}, {"val": 0.5, "test": 0.5}])
def test_shares_that_leave_nothing_to_train_on_are_refused(shares):
    with pytest.raises(RequestError, match="whose sum is below 1"):
        Split(**shares)


def test_an_unknown_word_for_test_is_refused():
    with pytest.raises(RequestError, match="a share or \"official\", got 'offical'"):
        Split(test="offical")


def raw_with_official_test():
    """Ten classes with 40 training and 20 test rows each."""
    y = np.tile(np.arange(10), 60)
    return Raw(x=np.zeros((600, 1)), y=y, test_rows=np.arange(400, 600), classes=10)


def test_official_test_rows_follow_each_clients_own_classes():
    raw = raw_with_official_test()
    _, rows = allot(raw, Pathological(clients=20, classes=2), Split(val=0.2, test="official"), 0)
    for client in range(20):
        train, val, test = (rows.rows(client, split) for split in range(3))
        assert set(raw.y[test]) == set(raw.y[train]) == set(raw.y[val])
        assert (len(train), len(val), len(test)) == (16, 4, 10)
        assert test.min() >= 400 > max(train.max(), val.max())
    assert len(np.unique(rows.index)) == 600


def test_official_test_rows_follow_each_clients_own_latent_group():
    cloud = np.tile([0, 1], 30)
    x = cloud[:, None] * 100.0 + np.arange(60)[:, None] / 60
    raw = Raw(x=x, y=np.arange(60) // 2 % 3, test_rows=np.arange(40, 60), classes=3)
    _, rows = allot(raw, Latent(clients=2, groups=2), Split(val=0.0, test="official"), 0)
    for client in range(2):
        assert len(rows.rows(client, 2)) == 10
        assert set(cloud[rows.rows(client, 2)]) == set(cloud[rows.rows(client, 0)])


def test_a_share_for_test_pools_official_rows_with_the_others():
    _, rows = allot(raw_with_official_test(), IID(clients=5), Split(val=0.0, test=0.2), 0)
    train = np.concatenate([rows.rows(client, 0) for client in range(5)])
    assert (train >= 400).any()


def test_held_out_rows_go_in_proportion_to_what_clients_hold():
    strata = np.zeros(140, np.int64)
    shared = share_held_out(strata, [np.arange(30), np.arange(30, 40)], np.arange(40, 140), KEY)
    assert [len(rows) for rows in shared] == [75, 25]


def test_what_rounding_takes_in_one_class_comes_back_in_the_next():
    # Ten classes with a single test row each, ten clients who hold the same of everything.
    strata = np.concatenate([np.tile(np.arange(10), 10), np.arange(10)])
    parts = [np.arange(client * 10, client * 10 + 10) for client in range(10)]
    shared = share_held_out(strata, parts, np.arange(100, 110), KEY)
    assert [len(rows) for rows in shared] == [1] * 10


def test_a_natural_split_is_honoured_client_by_client():
    raw = Raw(
        x=np.zeros((8, 1)),
        y=np.zeros(8, np.int64),
        clients=np.array(list("abababab")),
        split=np.array(["train", "train", "val", "test", "train", "train", "test", "test"]),
        classes=1,
    )
    clients, rows = allot(raw, Natural(), Split(test="official"), 0)
    assert clients == ("a", "b")
    found = [[rows.rows(client, split).tolist() for split in range(3)] for client in range(2)]
    assert found == [[[0, 4], [2], [6]], [[1, 5], [], [3, 7]]]


def test_test_rows_of_clients_without_training_rows_are_left_out():
    raw = Raw(
        x=np.zeros((3, 1)),
        y=np.zeros(3),
        clients=np.array(["a", "a", "z"]),
        test_rows=np.array([2]),
    )
    clients, rows = allot(raw, Natural(), Split(val=0.0, test="official"), 0)
    assert clients == ("a",)
    assert rows.index.tolist() == [0, 1]
