"""Every kind of unusable data is refused with a clear error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motet.data import Normalize, Split, from_arrays, from_rows
from motet.data._assignment import Assignment
from motet.data._chain import Chain
from motet.data._federation import Federation
from motet.errors import DataError, RequestError

X, Y = np.zeros((3, 2), np.float32), np.array([0, 1, 1])


def with_value(value, row, column=0):
    x = X.copy()
    x[row, column] = value
    return x


@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        ({}, "has no clients with data"),
        ({"a": (X, Y), "b": (X[:0], Y[:0])}, 'client "b" has no training data'),
        ({"a": (X, Y[:2])}, r'client "a" \(train\) has 3 inputs but 2 targets'),
        ({"a": (X, Y), "b": (X[:, :1], Y)}, r'row of client "a" has \(2,\), of client "b" \(1,\)'),
        ({"a": (X, Y), "b": (X.astype(np.uint8), Y)}, r"inputs of one kind; .*float32 \(numbers\)"),
        ({"a": (X, Y), "b": (with_value(np.nan, 2), Y)}, r'client "b": row 2 \(train\) has a NaN'),
        ({"a": (with_value(np.inf, 1, 1), Y)}, r'client "a": row 1 \(train\) .*\(inf\)'),
        (
            {"a": (np.array([["x", "y"]] * 3), Y)},
            r'x of client "a" \(train\) must hold numbers, got <U1',
        ),
        ({"a": (X, np.array(["x", "y", "z"]))}, r'y of client "a" \(train\) must hold numbers'),
        ({"a": (X, np.array([0, -1, 1]))}, r"row 1 .*whole number from 0 to 1 \(-1\)"),
        ({"a": (X, np.array([0.5, np.nan, 1.0]))}, r"row 1 .*target that is not a finite number"),
        ({"a": X}, r"must be a pair \(x, y\)"),
        ({"a": ([[1, 2], [3]], Y)}, "is not one array"),
        ({"a": (np.float32(1), Y)}, "one row per example"),
        ({1: (X, Y), "1": (X, Y)}, '"1" appears more than once'),
    ],
)
def test_unusable_training_data_are_refused(train, sentence):
    with pytest.raises(DataError, match=sentence):
        from_arrays(train=train)


def test_labels_beyond_the_stated_number_of_classes_are_refused():
    with pytest.raises(DataError, match=r'client "a": row 2 \(train\) .*from 0 to 1 \(2\)'):
        from_arrays(train={"a": (X, np.array([0, 1, 2]))}, classes=2)


def test_labels_that_are_not_whole_are_refused_when_classes_are_stated():
    with pytest.raises(DataError, match=r"row 0 .*whole number from 0 to 2 \(0\.5\)"):
        from_arrays(train={"a": (X, np.array([0.5, 1.0, 2.0]))}, classes=3)


def test_whole_floats_are_labels_when_classes_are_stated():
    data = from_arrays(train={"a": (X, np.array([0.0, 1.0, 2.0]))}, classes=3)
    assert data.examples("a", "train").y.dtype == torch.int64


def test_every_class_needs_one_name():
    with pytest.raises(DataError, match="each of 3 classes, got 2"):
        from_arrays(train={"a": (X, Y)}, classes=3, labels=["cat", "dog"])


def test_test_data_of_an_unknown_client_are_refused():
    with pytest.raises(DataError, match='client "z" has test data but no training data'):
        from_arrays(train={"a": (X, Y)}, test={"z": (X, Y)})


def test_a_nan_far_down_a_big_array_is_found_in_the_right_row():
    x = np.zeros((200_000, 16), np.float32)  # several chunks
    x[150_001, 3] = np.nan
    ids = np.arange(200_000) // 50_000
    with pytest.raises(DataError, match=r'client "3": row 150001'):
        from_rows(x, np.zeros(200_000, np.int64), ids, split=Split(val=0.0, test=0.0))


def test_rows_that_no_client_uses_may_be_broken():
    federation = from_arrays(train={"a": (X, Y), "b": (X, Y)})
    x = np.concatenate([X, with_value(np.nan, 0)])
    Federation(
        name="half",
        clients=("a",),
        x=Chain.of([x]),
        y=Chain.of([np.tile(Y, 2)]),
        rows=federation.select(["a"]).rows,
        classes=2,
    ).check()


def test_a_row_in_two_splits_is_refused():
    rows = Assignment.of([np.array([0, 1]), np.array([2]), np.array([1])])
    federation = Federation("leak", ("a",), Chain.of([X]), Chain.of([Y]), rows, classes=2)
    with pytest.raises(DataError, match=r'client "a": row 1 .*more than one client or split'):
        federation.check()


def test_an_empty_federation_is_refused():
    federation = Federation("none", (), Chain.of([X]), Chain.of([Y]), Assignment.of([]), classes=2)
    with pytest.raises(DataError, match="has no clients"):
        federation.check()


@pytest.mark.parametrize(
    ("x", "normalize", "sentence"),
    [
        (np.zeros((3, 2), np.int64), Normalize((0.0,), (1.0,)), "tokens"),
        (
            np.zeros((3, 4, 2)),
            Normalize((0.0, 0.0), (1.0, 1.0)),
            r"2 means, but .*\(4, 2\) have 4 channels",
        ),
    ],
)
def test_a_normalization_that_does_not_fit_is_refused(x, normalize, sentence):
    with pytest.raises(DataError, match=sentence):
        from_arrays(train={"a": (x, Y)}, normalize=normalize)


@pytest.mark.parametrize("normalize", [((0.0,), (0.0,)), ((0.0, 1.0), (1.0,)), ((), ())])
def test_a_normalization_that_makes_no_sense_is_refused(normalize):
    with pytest.raises(RequestError, match="std"):
        Normalize(*normalize)


def test_split_together_with_test_examples_is_refused():
    with pytest.raises(RequestError, match="not both"):
        from_arrays(train={"a": (X, Y)}, test={"a": (X, Y)}, split=Split())
