"""Reductions: weighted means and gathered uploads, in any grouping."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import assert_close, assert_same

from motet import Gather, Mean
from motet._core import tree

floats = st.floats(-100, 100, width=32)
cohorts = st.lists(st.tuples(floats, st.integers(1, 50)), min_size=1, max_size=6)


def combined(reduce, uploads, weights, groups=None):
    """Lift the uploads in groups (all at once if None), merge in order, finish."""
    names = [f"c{i}" for i in range(len(uploads))]
    parts = []
    for group in groups or [range(len(uploads))]:
        stacked = tree.stack([uploads[i] for i in group])
        weight = torch.tensor([float(weights[i]) for i in group])
        parts.append(reduce.lift([names[i] for i in group], stacked, weight))
    total = parts[0]
    for part in parts[1:]:
        total = reduce.merge(total, part)
    return reduce.finish(total)


def states(values):
    return [{"w": torch.tensor([v, -v])} for v in values]


def test_one_two_four_with_ten_twenty_seventy_is_three_point_three():
    came = combined(Mean(), states([1.0, 2.0, 4.0]), [10, 20, 70])
    assert_close(came, {"w": torch.tensor([3.3, -3.3])}, 1e-7)


@given(cohorts)
def test_weights_scale_out(cohort):
    values, weights = zip(*cohort, strict=True)
    once = combined(Mean(), states(values), weights)
    thrice = combined(Mean(), states(values), [3 * w for w in weights])
    assert_close(once, thrice, 1e-6)


@given(cohorts)
def test_the_order_of_the_cohort_is_irrelevant(cohort):
    values, weights = zip(*cohort, strict=True)
    forwards = combined(Mean(), states(values), weights)
    backwards = combined(Mean(), states(values[::-1]), weights[::-1])
    assert_close(forwards, backwards, 1e-6)


@given(cohorts, st.integers(0, 6))
def test_grouping_is_irrelevant(cohort, cut):
    values, weights = zip(*cohort, strict=True)
    everyone = range(len(values))
    groups = [g for g in (everyone[:cut], everyone[cut:]) if len(g)]
    whole = combined(Mean(), states(values), weights)
    assert_close(whole, combined(Mean(), states(values), weights, groups), 1e-6)
    singly = [[i] for i in everyone]
    assert_same(
        combined(Gather(), states(values), weights),
        combined(Gather(), states(values), weights, singly),
    )


@given(cohorts)
def test_a_mean_lies_between_the_least_and_the_largest(cohort):
    values, weights = zip(*cohort, strict=True)
    mean = combined(Mean(), states(values), weights)["w"][0].item()
    assert min(values) - 1e-4 <= mean <= max(values) + 1e-4


def test_counters_keep_their_largest_value_and_their_type():
    uploads = [{"n": torch.tensor(v)} for v in (3, 9, 4)]
    for groups in (None, [[0], [1], [2]], [[0, 1], [2]]):
        came = combined(Mean(), uploads, [1, 1, 100], groups)
        assert_same(came, {"n": torch.tensor(9)})


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_floats_keep_their_type(dtype):
    uploads = [{"w": torch.ones(2, dtype=dtype)} for _ in range(3)]
    assert combined(Mean(), uploads, [1, 2, 3])["w"].dtype == dtype


def test_sums_do_not_lose_small_clients():
    uploads = [{"w": torch.tensor([1.0])}, {"w": torch.tensor([0.0])}]
    came = combined(Mean(), uploads, [1, 2**24], [[0], [1]])
    assert came["w"].item() == pytest.approx(1 / (2**24 + 1), rel=1e-6)


def test_nothing_sent_is_nothing_combined():
    assert combined(Mean(), [{}, {}], [1, 2]) == {}
    assert combined(Gather(), [{}, {}], [1, 2]) == {"c0": {}, "c1": {}}


def test_gathered_uploads_are_copies_by_client_in_order():
    stacked = {"w": torch.tensor([[1.0], [2.0]])}
    gathered = Gather().finish(Gather().lift(["b", "a"], stacked, torch.ones(2)))
    assert list(gathered) == ["a", "b"]
    stacked["w"].zero_()
    assert gathered["a"]["w"].item() == 2
    assert gathered["b"]["w"].item() == 1
