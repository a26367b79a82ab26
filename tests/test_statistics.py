"""Paired differences: the same clients, the same seeds, and better is positive."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scored import evaluation, name, noisy, scored

from motet._compare.comparison import Comparison
from motet._verdict.judging import Pair, judged
from motet._verdict.statistics import Gains, gains
from motet._verdict.statistics import difference as summarized

RNG = np.random.default_rng(0)


def difference(label, reference, values):
    (found,) = judged([Pair(gains=values)], methods=2, margin=0.05, bounded=False)
    names = tuple(name(place) for place in range(len(values)))
    return summarized(label, reference, Gains(names, values), found)


def paired(comparison, label, reference, clients=None):
    return difference(label, reference, gains(comparison, label, reference, clients).values)


def test_gains_are_clients_by_seeds_and_positive_where_the_label_is_better():
    comparison = scored({"a": [[0.9, 0.8], [0.5, 0.6]], "b": [[0.7, 0.7], [0.6, 0.4]]})
    found = gains(comparison, "a", "b")
    assert found.clients == ("c00", "c01")
    assert found.values == pytest.approx(np.array([[0.2, 0.1], [-0.1, 0.2]]))
    assert found.by_client() == pytest.approx({"c00": 0.15, "c01": 0.05})


def test_a_lower_rmse_is_a_gain():
    comparison = scored({"a": [[1.0], [3.0]], "b": [[2.0], [2.5]]}, metric="rmse")
    found = paired(comparison, "a", "b")
    assert found.mean == pytest.approx(0.25)
    assert (found.clients_better, found.clients_worse) == (1, 1)


def test_a_difference_counts_clients_and_seeds():
    values = np.array([[0.2, 0.2, 0.2], [0.1, -0.1, 0.0], [-0.3, 0.1, -0.1], [0.0, 0.0, 0.0]])
    found = difference("a", "b", values)
    assert (found.clients, found.clients_better, found.clients_worse) == (4, 1, 1)
    assert found.by_seed == pytest.approx((0.0, 0.05, 0.025))
    assert found.mean == pytest.approx(values.mean())


def test_only_seeds_and_clients_that_both_have_are_compared():
    whole = scored({"a": RNG.random((4, 3)), "b": RNG.random((4, 3))})
    first, *others = whole.rows
    short = replace(first, evaluation=evaluation("a", [0.5, 0.5, 0.5]))  # c03 is missing
    missing = Comparison(**{**vars(whole), "rows": (short, *others[:-1])})  # b without seed 2
    found = gains(missing, "a", "b")
    assert found.clients == ("c00", "c01", "c02")
    assert found.values.shape == (3, 2)


def test_the_order_of_rows_does_not_matter():
    comparison = scored(noisy(RNG, "ab"))
    turned = replace(comparison, rows=comparison.rows[::-1])
    assert paired(turned, "a", "b") == paired(comparison, "a", "b")


def test_some_clients_can_be_asked_alone():
    comparison = scored({"a": [[0.5], [0.6], [0.9]], "b": [[0.4], [0.4], [0.1]]})
    found = paired(comparison, "a", "b", clients={name(0), name(1)})
    assert (found.clients, found.mean) == (2, pytest.approx(0.15))


@pytest.mark.parametrize("values", [np.full((4, 2), np.nan), np.zeros((0, 0)), np.zeros((3, 0))])
def test_where_nothing_is_known_nothing_is_claimed(values):
    found = difference("a", "b", values)
    assert np.isnan([found.mean, found.low, found.high]).all()
    assert found.p_value == 1.0
    assert not found.supported
    assert not found.probable


def test_a_method_is_no_better_than_itself():
    found = paired(scored(noisy(RNG, "a")), "a", "a")
    assert (found.mean, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


@given(st.integers(0, 2**32))
def test_reversed_is_the_comparison_the_other_way_round(seed):
    comparison = scored(noisy(np.random.default_rng(seed), "ab", clients=6))
    there, back = paired(comparison, "a", "b"), paired(comparison, "b", "a").reversed()
    for field, value in vars(there).items():
        assert getattr(back, field) == (value if isinstance(value, str) else pytest.approx(value))


def test_what_is_supported_survives_the_correction_and_what_is_probable_does_not():
    alone = difference("a", "b", 0.1 + 0.01 * RNG.normal(size=(10, 3)))
    assert alone.supported
    assert alone.better
    assert not alone.worse
    among_many = replace(alone, cautious=0.2, corrected=0.02)
    assert not among_many.supported
    assert among_many.probable
    assert among_many.probably_better
    assert among_many.reversed().probably_worse
    in_runs = replace(among_many, corrected=0.2)
    assert in_runs.in_runs
    assert in_runs.apart
    assert not replace(in_runs, corrected_in_runs=0.2).apart


def test_where_examples_count_equally_the_mean_gain_is_weighted_by_them():
    values, weights = RNG.normal(size=(5, 3)), np.array([1.0, 5.0, 2.0, 40.0, 2.0])
    found = Gains(tuple("abcde"), values, (0, 1, 2), weights).counted()
    assert found.mean(0) == pytest.approx(np.average(values, axis=0, weights=weights))
    alike = Gains(tuple("abcde"), values, (0, 1, 2), np.full(5, 7.0)).counted()
    assert alike == pytest.approx(values)
