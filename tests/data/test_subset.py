"""Parts of data sets: rows, classes, and sizes of images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motet._core.keys import Key
from motet.data import Natural, Pathological, Raw, load, rebuild
from motet.data._resizing import resized_images
from motet.data._subset import Subset, evenly_drawn
from motet.errors import CapabilityError, RequestError


def images(rows: int = 60, classes: int = 3, *, clients: int | None = None) -> Raw:
    y = np.arange(rows) % classes
    x = np.random.default_rng(0).integers(0, 256, (rows, 3, 8, 8), np.uint8)
    x[:, 0, 0, 0] = np.arange(rows)  # so that a row is known by its image
    owner = None if clients is None else np.array([f"c{i % clients}" for i in range(rows)])
    labels = tuple("abcdefghij"[:classes])
    test = np.arange(rows - rows // 3, rows)
    return Raw(x=x, y=y, test_rows=test, clients=owner, labels=labels, classes=classes)


@settings(max_examples=30, deadline=None)
@given(st.integers(6, 90), st.integers(2, 5), st.integers(1, 90), st.booleans())
def test_a_limit_keeps_the_shares_of_splits_and_strata(rows, kinds, limit, natural):
    raw = images(rows, kinds, clients=kinds if natural else None)
    cut = Subset(limit=limit).of(raw, Key(1))
    kept = min(limit, rows)
    assert len(cut.y) == len(cut.x) == kept
    for split in ("train", "test"):
        expected = kept * len(raw.rows_of(split)) / rows
        assert abs(len(cut.rows_of(split)) - expected) <= 1
    strata = raw.clients if natural else raw.y
    for value in np.unique(strata):
        expected = kept * (strata == value).sum() / rows
        found = ((cut.clients if natural else cut.y) == value).sum()
        assert abs(found - expected) <= 2  # one for each split
    assert np.array_equal(cut.y, raw.y[cut.x[:, 0, 0, 0]])  # images and labels stay together


def test_the_same_seed_keeps_the_same_rows_and_another_seed_others():
    raw = images(90)
    first, again, other = (evenly_drawn(raw, 30, Key(seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("classes", "labels"), [(2, ("a", "b")), (["c", "a"], ("c", "a")), ([2, "b"], ("c", "b"))]
)
def test_chosen_classes_are_numbered_anew_in_the_given_order(classes, labels):
    raw = images()
    cut = Subset(classes=classes).of(raw, Key(0))
    assert cut.labels == labels
    assert cut.classes == len(labels)
    before = [raw.labels[raw.y[row]] for row in cut.x[:, 0, 0, 0]]
    assert before == [cut.labels[label] for label in cut.y]
    assert sorted(set(before)) == sorted(labels)
    assert cut.has_test


def test_a_size_halves_images_by_the_mean_of_neighbours():
    raw = images(4)
    small = Subset(size=4).of(raw, Key(0)).x
    assert small.dtype == np.uint8
    assert small.shape == (4, 3, 4, 4)
    flat = np.full((1, 3, 8, 8), 77, np.uint8)
    for size in (3, 4, 8, 20):
        assert (resized_images(flat, size) == 77).all()
    assert np.array_equal(Subset(size=8).of(raw, Key(0)).x, raw.x)


@pytest.mark.parametrize(
    ("name", "options", "partition"),
    [
        ("digits", {"limit": 300, "size": 12}, Pathological(clients=5, classes=2)),
        ("digits", {"classes": ["3", "5", "8"], "limit": 200}, None),
    ],
)
def test_a_subset_is_part_of_the_manifest_and_comes_back(name, options, partition):
    cut = load(name, partition, seed=3, **options)
    assert cut.rows.sizes.sum() == options["limit"]
    assert cut.recipe["subset"] == options
    again = rebuild(cut.manifest())
    assert again.hash == cut.hash
    assert again.shape == cut.shape


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"limit": 0}, "data.limit must be a whole number of at least 1, got 0"),
        ({"size": 100_000}, "data.size is at most 1024 pixels; got 100000"),
        ({"classes": 1}, "data.classes is a number between 2 and 10 here; got 1"),
        ({"classes": ["3", "x"]}, 'no class is called "x"'),
        ({"classes": [3, "3"]}, "at least two classes, each once"),
    ],
)
def test_a_wrong_subset_is_refused(options, complaint):
    with pytest.raises(RequestError, match=complaint):
        load("digits", **options)


def test_a_table_and_data_that_are_no_images_refuse_what_is_for_others():
    with pytest.raises(RequestError, match=r"is a table, and data\.size is for arrays"):
        load("medpar", size=8)
    signals = Raw(x=np.zeros((6, 9), np.float32), y=np.arange(6) % 2, classes=2)
    with pytest.raises(CapabilityError, match=r"is for images .* have shape \[9\]"):
        Subset(size=4).of(signals, Key(0))
    values = Raw(x=np.zeros((6, 9), np.float32), y=np.zeros(6, np.float32))
    with pytest.raises(CapabilityError, match="these data have none"):
        Subset(classes=2).of(values, Key(0))


def test_a_limit_on_natural_clients_leaves_all_of_them_rows():
    raw = images(90, clients=5)
    cut = Subset(limit=30).of(raw, Key(0))
    assert set(cut.clients) == set(raw.clients)
    assert Natural().strata(cut, Key(0)).max() == 4
