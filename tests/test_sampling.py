"""Cohorts: who takes part is a matter of the key and the round alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from motet import FedAvg, Key, Task
from motet._core.sampling import cohort_size, draw_cohort
from motet._engine.federation import start
from motet.data import from_arrays
from motet.errors import CohortError

CLIENTS = [f"client{i:02}" for i in range(50)]
TASK = Task(lambda: nn.Linear(2, 1), loss="mse")


def test_every_client_appears_over_a_hundred_rounds_at_ten_percent():
    cohorts = [draw_cohort(CLIENTS, 0.1, t, Key(0)) for t in range(100)]
    assert {len(set(cohort)) for cohort in cohorts} == {5}
    assert set().union(*cohorts) == set(CLIENTS)
    assert len(set(cohorts)) > 95  # no fixed subset


@given(st.permutations(CLIENTS[:8]), st.integers(0, 20))
def test_a_cohort_does_not_depend_on_the_listing_order(listed, number):
    def cohort(clients):
        data = from_arrays(train={c: (np.zeros((1, 2), "float32"), np.zeros(1)) for c in clients})
        run = start(FedAvg(), TASK, data, rounds=number, cohort=3)
        return draw_cohort(run.setting.everybody, 3, number, Key(1))

    assert cohort(listed) == cohort(CLIENTS[:8])


def test_a_round_does_not_depend_on_the_rounds_before():
    key = Key(5)
    assert draw_cohort(CLIENTS, 4, 17, key) == draw_cohort(CLIENTS, 4, 17, key)
    assert draw_cohort(CLIENTS, 4, 17, key) != draw_cohort(CLIENTS, 4, 18, key)


def test_one_point_zero_is_everybody_and_one_is_one_client():
    assert cohort_size(1.0, 20) == 20
    assert cohort_size(1, 20) == 1
    assert draw_cohort(["a", "b"], 1.0, 0, Key(0)) == ("a", "b")


def test_a_small_fraction_is_still_somebody():
    assert cohort_size(0.001, 20) == 1


def test_long_number_like_ids_survive_sampling():
    ids = [str(2**62 + i) for i in range(5)]
    assert set(draw_cohort(ids, 5, 0, Key(0))) == set(ids)


@pytest.mark.parametrize(
    ("cohort", "sentence"),
    [
        (0, "cohort=0 is a count, and there are 20 clients; use 1 to 20"),
        (21, "cohort=21 is a count, and there are 20 clients"),
        (0.0, "above 0 and at most 1.0"),
        (1.5, "cohort=1.5 is a fraction, which must be above 0 and at most 1.0"),
        (True, "a fraction or a count; got True"),
        ("half", "a fraction or a count; got 'half'"),
    ],
)
def test_a_cohort_that_cannot_be_drawn_is_refused(cohort, sentence):
    with pytest.raises(CohortError, match=sentence):
        cohort_size(cohort, 20)
