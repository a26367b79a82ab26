"""Federations from Hugging Face data sets."""

from __future__ import annotations

import numpy as np
import pytest

from motet.data import Split, from_hf
from motet.errors import DataError, RequestError

TRAIN_ONLY = Split(val=0.0, test=0.0)


class Labels:
    """Stands for `datasets.ClassLabel`."""

    names = ("cat", "dog")


class Table:
    """The few things of a `datasets.Dataset` that are read."""

    def __init__(self, **columns):
        self.columns = columns
        self.column_names = list(columns)
        self.features = {name: Labels() if name == "label" else None for name in columns}

    def with_format(self, kind, columns):
        assert kind == "numpy"
        return self

    def __getitem__(self, rows):
        return self.columns

    def __len__(self):
        return len(self.columns["label"])


def pets(x, rows=4):
    return Table(image=x, owner=np.array(["ann", "bob"] * (rows // 2)), label=np.arange(rows) % 2)


def opened(dataset, **options):
    return from_hf(dataset, client="owner", input="image", target="label", **options)


def test_columns_become_clients_inputs_and_named_labels():
    data = opened(pets(np.arange(8.0).reshape(4, 2)), split=TRAIN_ONLY)
    assert (data.clients, data.labels) == (("ann", "bob"), ("cat", "dog"))
    assert data.examples("bob", "train").x.tolist() == [[2, 3], [6, 7]]


def test_images_get_channels_first():
    colour = opened(pets(np.zeros((4, 5, 6, 3), np.uint8)), split=TRAIN_ONLY)
    grey = opened(pets(np.zeros((4, 5, 6), np.uint8)), split=TRAIN_ONLY)
    assert (colour.shape, grey.shape) == ((3, 5, 6), (1, 5, 6))


def test_a_dictionary_of_splits_is_honoured():
    parts = {"train": pets(np.zeros((4, 1))), "test": pets(np.ones((2, 1)), rows=2)}
    data = opened(parts)
    assert data.sizes("test") == {"ann": 1, "bob": 1}
    assert data.examples("ann", "test").x.tolist() == [[1.0]]


def test_a_missing_column_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match='no column "owners"; did you mean "owner"'):
        from_hf(pets(np.zeros((4, 1))), client="owners", input="image", target="label")


def test_ragged_inputs_are_refused():
    ragged = np.empty(4, object)
    with pytest.raises(DataError, match='column "image" has rows of different shapes'):
        opened(pets(ragged))


def test_a_real_data_set_is_read():
    # Stored pixels, which numpy formatting would widen to int64.
    datasets = pytest.importorskip("datasets", reason="the [hf] extra is not installed")
    features = datasets.Features(
        image=datasets.Array2D((2, 2), "uint8"),
        owner=datasets.Value("string"),
        label=datasets.ClassLabel(names=["cat", "dog"]),
    )
    rows = {
        "image": np.arange(16, dtype=np.uint8).reshape(4, 2, 2).tolist(),
        "owner": ["ann", "bob"] * 2,
        "label": [0, 1, 1, 0],
    }
    dataset = datasets.Dataset.from_dict(rows, features=features)
    data = opened(datasets.DatasetDict(train=dataset, validation=dataset, test=dataset))
    assert data.labels == ("cat", "dog")
    assert (data.shape, data.sizes("val")) == ((1, 2, 2), {"ann": 2, "bob": 2})
    assert data.examples("bob", "train").y.tolist() == [1, 0]


def test_real_pictures_are_read():
    datasets = pytest.importorskip("datasets", reason="the [hf] extra is not installed")
    pillow = pytest.importorskip("PIL.Image", reason="pictures need pillow")
    picture = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    features = datasets.Features(
        image=datasets.Image(), owner=datasets.Value("string"), label=datasets.Value("int64")
    )
    rows = {"image": [pillow.fromarray(picture)] * 2, "owner": ["ann", "bob"], "label": [0, 1]}
    data = opened(datasets.Dataset.from_dict(rows, features=features), split=TRAIN_ONLY)
    assert (data.x.blocks[0][0] == picture.transpose(2, 0, 1)).all()
