"""Networks and arrays that cannot work are refused before the first round, with the remedy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from torch import Tensor, nn

import motet
from motet.errors import DataError, RequestError, StructureError

X, Y = np.ones((6, 4), np.float32), np.arange(6) % 2


class Returning(nn.Module):
    """Two layers whose scores go through a function at the end."""

    def __init__(self, last: Callable[[Tensor], object], outputs: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, outputs))
        self.last = last

    def forward(self, x: Tensor) -> object:
        return self.last(self.layers(x))


def run(network: nn.Module, backend: str) -> motet.Run:
    data = motet.data.from_arrays({"a": (X, Y), "b": (X, Y)}, test={"a": (X, Y)})
    task = motet.Task(build=lambda: network)
    return motet.run(motet.FedAvg(), task, data, rounds=1, backend=backend)


@pytest.mark.parametrize("backend", ["serial", "auto"])
@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (Returning(lambda y: (y, y)), "must return one tensor, got tuple; return the scores alone"),
        (Returning(lambda y: {"logits": y}), "must return one tensor, got dict"),
        (Returning(lambda y: y.squeeze()), r"for 1 example, got outputs of shape \(2,\)"),
        (Returning(lambda y: y.T), r"for 1 example, got outputs of shape \(2, 1\)"),
        (Returning(lambda y: y.mean()), r"got outputs of shape \(\)"),
        (nn.Sequential(nn.Linear(4, 2), nn.GroupNorm(2, 2)), "Expected more than 1 value"),
        (nn.Sequential(nn.Linear(5, 2)), r"shape \(2, 4\) .*Check the input size"),
    ],
)
def test_a_network_without_a_row_per_example_is_refused(network, sentence, backend):
    with pytest.raises(StructureError, match=sentence):
        run(network, backend)


@pytest.mark.parametrize("last", [lambda y: y, lambda y: y.squeeze(-1)])
def test_one_output_for_two_classes_is_refused_with_the_loss_that_takes_it(last):
    with pytest.raises(DataError, match=r'has 1 output; .*loss="binary_cross_entropy"'):
        run(Returning(last, outputs=1), "serial")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"test": 0.2},
            r"test= expects \{client: \(x, y\)\}, got float; .*split=Split\(test=0.2\)",
        ),
        ({"val": 1}, r"val= expects .*, got int; .*split=Split\(val=1\)"),
        ({"test": [(X, Y)]}, r"test= expects \{client: \(x, y\)\}, got list\."),
        ({"train": [(X, Y)]}, r"train= expects \{client: \(x, y\)\}, got list\."),
    ],
)
def test_arrays_without_names_of_clients_are_refused(given, sentence):
    with pytest.raises(RequestError, match=sentence):
        motet.data.from_arrays(**({"train": {"a": (X, Y)}} | given))
