"""What a network cannot be trained on is refused, with a line that works when it is followed."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import motet
from motet.errors import DataError, StructureError

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
Y = np.arange(12) % 3


def trained(x=X, y=Y, outputs=3, loss="cross_entropy"):
    data = motet.data.from_arrays({"a": (x, y), "b": (x, y)})
    task = motet.Task(lambda: nn.Linear(4, outputs), loss=loss)
    return motet.run(motet.FedAvg(), task, data, rounds=1)


@pytest.mark.parametrize(
    ("wrong", "sentence", "right"),
    [
        ({"y": Y.astype(np.float32)}, r'y\.astype\("int64"\)', {}),
        ({"y": np.eye(3)[Y]}, r"one-hot.*y\.argmax\(-1\)", {"y": np.eye(3)[Y].argmax(-1)}),
        ({"y": X[:, 0]}, 'use loss="mse"', {"y": X[:, 0], "outputs": 1, "loss": "mse"}),
        ({"y": Y + 1}, "from 1 to 3, .* count classes from 0: y - 1", {}),
        ({"y": Y + 2, "outputs": 4}, "give it at least 5, .*y - 1", {"y": Y + 1, "outputs": 4}),
        ({"y": Y[:, None]}, r"1 target per example.*y\[:, 0\]", {}),
        ({"y": X[:, :3] > 0}, 'loss="multi_label"', {"y": X[:, :3] > 0, "loss": "multi_label"}),
        ({"y": Y > 0, "outputs": 1}, "at least 2, or use", {"y": Y > 0, "outputs": 2}),
        (
            {"y": Y > 0, "outputs": 1},
            'use loss="binary_cross_entropy"',
            {"y": Y > 0, "outputs": 1, "loss": "binary_cross_entropy"},
        ),
        ({"y": np.ma.masked_equal(Y, 2)}, "y of client .* 4 masked values", {}),
        ({"x": np.ma.masked_less(X, -1)}, "x of client .* masked values.*filled", {}),
        ({"x": X.astype(complex)}, "imaginary part", {}),
        ({"x": X.astype(object)}, r'astype\("float32"\)', {}),
        ({"x": X.astype("M8[s]")}, "days since", {}),
        ({"x": (9 * X).astype(int)}, r'measurements.*x\.astype\("float32"\)', {}),
    ],
)
def test_what_a_network_cannot_be_trained_on_is_refused_with_a_line_that_works(
    wrong, sentence, right
):
    with pytest.raises((DataError, StructureError), match=sentence):
        trained(**wrong)
    assert trained(**right).server is not None


def test_a_split_without_examples_is_refused_with_the_way_to_cut_one():
    with pytest.raises(DataError, match=r"split=motet\.data\.Split\(test=0\.2\)"):
        trained().evaluate(split="test")
