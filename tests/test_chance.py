"""The mean gain over clients: laws of its interval and its test."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from motet._verdict.chance import SURE, Parts, mean_gains, over_seeds
from motet._verdict.multiplicity import benjamini_hochberg, holm

hundredths = st.integers(-50, 50).map(lambda value: value / 100)


def gains(clients=(2, 9), seeds=(2, 4)):
    shape = st.tuples(st.integers(*clients), st.integers(*seeds))
    return shape.flatmap(lambda s: arrays(float, s, elements=hundredths))


def alone(values):
    (found,) = mean_gains([np.asarray(values, float)], methods=2)
    return found


def test_the_parts_of_the_variance_by_hand():
    values = np.array([[0.0, 0.2], [0.4, 0.6], [0.2, 1.0]])
    found = Parts.of(values)
    assert found.clients == pytest.approx(np.var([0.1, 0.5, 0.6], ddof=1))
    assert found.seeds == pytest.approx(np.var([0.2, 0.6], ddof=1))
    rest = values - np.array([[0.1], [0.5], [0.6]]) - np.array([0.2, 0.6]) + 0.4
    assert found.both == pytest.approx((rest**2).sum() / 2 / 3)


def test_few_test_examples_are_a_lower_bound_for_how_much_clients_differ():
    values = np.full((4, 3), 0.2)  # 1 of 5 test examples each, by chance
    certain, rough = (mean_gains([values], methods=2, noise=[n])[0] for n in (0.0, 0.04))
    assert certain.p_value < 1e-6
    assert rough.p_value > 0.05


def test_with_one_seed_only_these_runs_are_judged_as_by_students_test():
    values = np.random.default_rng(0).normal(0.8, 1, size=(12, 1))
    found = alone(values)
    assert found.p_value == 1.0
    assert found.p_cautious == 1.0
    expected = stats.ttest_1samp(values[:, 0], 0).pvalue
    assert found.p_in_runs == pytest.approx(expected, rel=1.0)


def test_one_client_has_no_interval_and_proves_nothing():
    found = alone([[0.5, 0.6, 0.7]])
    assert np.isnan([found.low, found.high]).all()
    assert (found.p_value, found.p_in_runs) == (1.0, 1.0)


@pytest.mark.parametrize("values", [np.full((4, 2), np.nan), np.zeros((0, 0)), np.zeros((3, 0))])
def test_where_nothing_is_known_nothing_is_claimed(values):
    found = alone(values)
    assert np.isnan([found.mean, found.low, found.high]).all()
    assert found.p_value == 1.0


def test_a_method_is_no_better_than_itself():
    found = alone(np.zeros((5, 3)))
    assert (found.mean, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_the_interval_reaches_further_where_gains_are_spread_further():
    skewed = np.random.default_rng(2).exponential(size=(15, 1)) ** 2 * np.ones((1, 2))
    found = alone(skewed)
    assert found.high - found.mean > 1.1 * (found.mean - found.low)


def test_holms_and_hochbergs_corrections_by_hand():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
    assert benjamini_hochberg([0.04, 0.01, 0.03]) == pytest.approx([0.04, 0.03, 0.04])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_benjamini_hochberg_agrees_with_scipy_and_holm_is_stricter(p_values):
    ours = benjamini_hochberg(p_values)
    assert ours == pytest.approx(stats.false_discovery_control(p_values).tolist())
    assert all(
        p <= b + 1e-9 and b <= h + 1e-9
        for p, b, h in zip(p_values, ours, holm(p_values), strict=True)
    )


def test_gains_that_cancel_over_seeds_are_nothing_and_not_a_rounding_error():
    values = np.array([[0.1 + 0.2 - 0.3, 0.0], [0.7 - 0.6, 0.6 - 0.7], [0.3, 0.3]])
    assert over_seeds(values).tolist() == [0.0, 0.0, 0.3]


@given(gains())
def test_the_other_side_sees_the_same_with_the_signs_changed(values):
    there, back = alone(values), alone(-values)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-9)
    assert back.p_value == pytest.approx(there.p_value, rel=1e-6, abs=1e-9)


@given(gains(), st.integers(1, 30))
def test_a_larger_lead_is_never_less_certain(values, hundredth):
    ahead = values if values.mean() >= 0 else -values
    further = ahead + hundredth / 100
    assert alone(further).p_value <= alone(ahead).p_value + 1e-6


@given(gains(), st.randoms(use_true_random=False))
def test_the_order_of_clients_and_seeds_does_not_matter(values, random):
    rows, columns = list(range(values.shape[0])), list(range(values.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    again = alone(values[rows][:, columns])
    assert again.p_value == pytest.approx(alone(values).p_value, rel=1e-5, abs=1e-9)


def scores(rng, methods, clients, seeds, *, lead=0.0, client=0.05, seed=0.02, rest=0.02):
    shape = (methods, clients, seeds)
    drawn = client * rng.normal(size=(methods, clients, 1)) + seed * rng.normal(
        size=(methods, 1, seeds)
    )
    drawn = drawn + rest * rng.normal(size=shape)
    drawn[0] += lead
    return drawn


def against_first(drawn):
    found = mean_gains([drawn[0] - other for other in drawn[1:]], methods=len(drawn))
    return [one.p_cautious for one in found], [one.p_value for one in found]


def test_a_second_seed_does_not_make_an_obvious_lead_vanish():
    """Thirty points with clients that differ by 5 and seeds by 2: claimed with two seeds."""
    seen = []
    for number in range(25):
        drawn = scores(np.random.default_rng(number), 6, 20, 2, lead=0.3)
        seen.append(max(holm(against_first(drawn)[1], 15)) < 0.05)
    assert sum(seen) >= 24


def test_equal_methods_are_hardly_ever_called_different():
    claims = 0
    for number in range(60):
        drawn = scores(np.random.default_rng([number, 1]), 6, 10, 3, seed=0.05)
        claims += min(holm(against_first(drawn)[0], 15)) < SURE
    assert claims <= 1
