"""Golden values: five rounds on a toy world, the validation loss after each.

A change here is a change of results: `pytest tests/test_golden.py --update-golden` rewrites the
files, and the review reads the difference.
"""

from __future__ import annotations

import pytest

import motet
from motet.testing import ragged

METHODS = [motet.Local, motet.FedAvg, motet.FedAvgFT, motet.FedPer]


@pytest.mark.parametrize("backend", ["serial", "vectorized"])
@pytest.mark.parametrize("make", METHODS, ids=lambda m: m.name)
def test_five_rounds_end_where_they_did(make, backend, golden):
    world = ragged()
    method = make(optimizer=motet.Sgd(lr=0.2, momentum=0.5), batch_size=4)
    losses = [
        round_.evaluate("val").loss
        for round_ in motet.rounds(
            method, world.task, world.data, rounds=5, cohort=0.5, seed=1, backend=backend
        )
    ]
    golden(make.name, losses)
