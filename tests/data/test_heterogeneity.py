"""Measures of heterogeneity against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.data import from_arrays
from motet.data._heterogeneity import gini, measure
from motet.errors import CapabilityError


def measured(rows):
    table = np.array(rows)
    return measure(table, table.sum(axis=1))


def test_one_of_ten_equally_likely_classes_has_emd_1_8():
    found = measured(np.eye(10, dtype=np.int64) * 7)
    assert found.emd == pytest.approx([1.8] * 10)
    assert found.mean_emd == pytest.approx(1.8)


def test_two_of_ten_equally_likely_classes_have_emd_1_6():
    found = measured(np.kron(np.eye(5, dtype=np.int64), np.array([[4, 4]])))
    assert found.emd == pytest.approx([1.6] * 5)
    assert found.effective_classes == pytest.approx([2.0] * 5)


def test_equal_clients_do_not_differ():
    found = measured([[3, 1], [6, 2]])
    assert found.emd == pytest.approx([0, 0])
    assert found.js == pytest.approx([0, 0])


def test_jensen_shannon_of_one_of_two_classes_is_known():
    # p = (1, 0), q = (1/2, 1/2), middle (3/4, 1/4): H(middle) - 0/2 - 1/2 = 0.811278 - 0.5
    entropy = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert measured([[5, 0], [0, 5]]).js == pytest.approx([entropy - 0.5] * 2)


def test_the_overall_distribution_is_weighted_by_samples():
    # Together (9, 3): shares 3/4 and 1/4. Client b has (0, 2).
    found = measured([[9, 1], [0, 2]])
    assert found.emd == pytest.approx([0.9 - 0.75 + 0.25 - 0.1, 0.75 + 0.75])


def test_effective_classes_are_the_exponential_of_the_entropy():
    found = measured([[2, 1, 1], [4, 0, 0]])
    assert found.effective_classes == pytest.approx([2 * math.sqrt(2), 1.0])


@pytest.mark.parametrize(
    ("sizes", "value"), [([5, 5, 5], 0.0), ([0, 0, 0, 1], 0.75), ([1, 3], 0.25), ([1, 2, 3], 2 / 9)]
)
def test_gini_of_small_examples(sizes, value):
    assert gini(np.array(sizes)) == pytest.approx(value)


def test_a_client_without_samples_is_left_out_of_the_means():
    found = measured([[2, 0], [0, 2], [0, 0]])
    assert found.emd == pytest.approx([1, 1, float("nan")], nan_ok=True)
    assert found.mean_emd == pytest.approx(1.0)


@given(st.lists(st.lists(st.integers(0, 50), min_size=4, max_size=4), min_size=1, max_size=8))
def test_measures_stay_in_their_bounds(rows):
    found = measured(rows)
    known = ~np.isnan(found.emd)
    assert ((found.emd[known] >= 0) & (found.emd[known] < 2)).all()
    assert ((found.js[known] >= 0) & (found.js[known] <= 1)).all()
    assert (
        (found.effective_classes[known] >= 1 - 1e-9) & (found.effective_classes[known] <= 4 + 1e-9)
    ).all()
    assert 0 <= found.gini < 1


def test_a_federation_counts_its_labels_client_by_client():
    data = from_arrays(
        train={
            "b": (np.zeros((3, 1)), np.array([2, 2, 0])),
            "a": (np.zeros((1, 1)), np.array([1])),
        },
        test={"b": (np.zeros((1, 1)), np.array([1]))},
    )
    assert data.histogram().tolist() == [[1, 0, 2], [0, 1, 0]]
    assert data.histogram("test").tolist() == [[0, 1, 0], [0, 0, 0]]
    summary = data.heterogeneity().summary()
    assert (summary["size_min"], summary["size_median"], summary["size_max"]) == (1, 2.0, 3)


def test_sequences_count_with_every_token():
    data = from_arrays(train={"a": (np.zeros((2, 3)), np.array([[0, 1, 1], [1, 1, 2]]))})
    assert data.histogram().tolist() == [[1, 4, 1]]


def test_regression_has_sizes_but_no_labels():
    data = from_arrays(train={"a": (np.zeros((2, 1)), np.array([0.5, 1.5]))})
    assert data.heterogeneity().emd is None
    assert data.heterogeneity().summary()["size_max"] == 2
    with pytest.raises(CapabilityError, match="regression"):
        data.histogram()
