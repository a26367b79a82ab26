"""Chance: closed forms, laws, and how often intervals and tests are right about a known truth."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from motet.judging.chance import (
    LEVEL,
    MANY,
    corrected,
    interval,
    over_seeds,
    p_value,
    sign_flips,
    smallest_p,
    student,
    variance,
)

hundredths = st.integers(-50, 50).map(lambda value: value / 100)


def gains(clients=(2, 9), seeds=(1, 4)):
    shape = st.tuples(st.integers(*clients), st.integers(*seeds))
    return shape.flatmap(lambda s: arrays(float, s, elements=hundredths))


# -- closed forms -------------------------------------------------------------


def test_with_one_seed_students_test_is_the_paired_t_test():
    values = np.random.default_rng(0).normal(0.3, 1, size=(12, 1))
    assert student(values) == pytest.approx(stats.ttest_1samp(values[:, 0], 0).pvalue)


def test_if_clients_only_share_the_luck_of_their_seed_the_test_is_one_over_seeds():
    by_seed = np.array([0.2, 0.5, 0.4])
    values = np.tile(by_seed, (1000, 1))
    assert student(values) == pytest.approx(stats.ttest_1samp(by_seed, 0).pvalue)


def test_the_variance_of_the_mean_is_that_over_clients_plus_that_over_seeds():
    values = np.array([[0.0, 0.2], [0.4, 0.6], [0.2, 1.0]])
    found = variance(values)
    assert found.clients == pytest.approx(np.var([0.1, 0.5, 0.6], ddof=1) / 3)
    assert found.seeds == pytest.approx(np.var([0.2, 0.6], ddof=1) / 2)


def test_the_tail_is_students_in_proportion_to_where_the_variance_is_from():
    values = np.array([[0.0, 0.2], [0.4, 0.6], [0.2, 1.0]])
    found = variance(values)
    part = found.seeds / (found.clients + found.seeds)
    expected = (1 - part) * 2 * stats.t.sf(3.0, 2) + part * 2 * stats.t.sf(3.0, 1)
    assert found.tail(3.0) == pytest.approx(expected)


def test_the_interval_is_as_long_as_students_and_covers_the_mean():
    values = np.random.default_rng(1).exponential(size=(10, 1))
    low, high = interval(values)
    reach = stats.t.isf(LEVEL / 2, 9) * values.std(ddof=1) / np.sqrt(10)
    assert high - low == pytest.approx(2 * reach)
    assert low < values.mean() < high


def test_the_interval_reaches_further_where_gains_are_spread_further():
    skewed = np.random.default_rng(2).exponential(size=(15, 1)) ** 2
    low, high = interval(skewed)
    assert high - skewed.mean() > 1.1 * (skewed.mean() - low)


def test_only_the_part_of_the_variance_that_is_the_clients_makes_the_interval_lean():
    almost_equal = np.random.default_rng(3).exponential(size=(15, 1)) * 1e-6
    low, high = interval(almost_equal + np.array([0.3, 0.2, -0.1]))
    mean = 0.4 / 3
    assert high - mean == pytest.approx(mean - low, rel=1e-3)
    assert low < 0


@pytest.mark.parametrize(
    ("of_clients", "p"),
    [([1, 2, 3, 4, 5], 2 / 32), ([1, 2, 3], 2 / 8), ([1, -1], 1.0), ([0, 0, 0], 1.0)],
)
def test_flipping_signs_by_hand(of_clients, p):
    assert sign_flips(np.array(of_clients, dtype=float)) == pytest.approx(p)


def test_flipping_signs_counts_all_of_them_for_few_clients():
    of_clients = np.random.default_rng(3).normal(0.5, 1, size=7)
    flipped = [np.dot(signs, of_clients) for signs in product((1, -1), repeat=7)]
    as_large = np.mean(np.abs(flipped) >= abs(of_clients.sum()) - 1e-12)
    assert sign_flips(of_clients) == pytest.approx(as_large)


def test_flipping_signs_agrees_with_students_test_for_many_clients():
    values = np.random.default_rng(4).normal(0.1, 1, size=(MANY, 1))
    assert sign_flips(values[:, 0]) == pytest.approx(student(values), abs=0.01)


def test_five_clients_that_agree_are_no_proof_and_six_are():
    assert p_value(np.ones((5, 3))) == smallest_p(5) > LEVEL
    assert p_value(np.ones((6, 3))) == smallest_p(6) < LEVEL


def test_one_client_has_no_interval_and_proves_nothing():
    values = np.array([[0.5, 0.6, 0.7]])
    assert np.isnan(interval(values)).all()
    assert p_value(values) == 1.0


def test_holms_correction_by_hand():
    assert corrected([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert corrected([0.6, 0.7]) == [1.0, 1.0]
    assert corrected([]) == []


def test_gains_that_cancel_over_seeds_are_nothing_and_not_a_rounding_error():
    values = np.array([[0.1 + 0.2 - 0.3, 0.0], [0.7 - 0.6, 0.6 - 0.7], [0.3, 0.3]])
    assert over_seeds(values).tolist() == [0.0, 0.0, 0.3]


# -- laws ---------------------------------------------------------------------


@given(gains())
def test_the_other_side_sees_the_same_with_the_signs_changed(values):
    low, high = interval(values)
    assert interval(-values) == pytest.approx((-high, -low), abs=1e-9)
    assert p_value(-values) == pytest.approx(p_value(values))


@given(gains(), st.floats(0.01, 100))
def test_units_change_the_interval_and_not_the_test(values, scale):
    assert interval(scale * values) == pytest.approx(
        tuple(scale * end for end in interval(values)), abs=1e-9 * scale
    )
    assert p_value(scale * values) == pytest.approx(p_value(values))


@given(gains(), st.integers(1, 30))
def test_a_larger_lead_is_never_less_certain_and_moves_the_interval_with_it(values, hundredth):
    ahead = values if values.mean() >= 0 else -values
    further = ahead + hundredth / 100
    assert p_value(further) <= p_value(ahead) + 1e-9
    assert interval(further) == pytest.approx(
        tuple(end + hundredth / 100 for end in interval(ahead)), abs=1e-9
    )


@given(gains(), st.randoms(use_true_random=False))
def test_the_order_of_clients_and_seeds_does_not_change_the_test(values, random):
    rows, columns = list(range(values.shape[0])), list(range(values.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    assert p_value(values[rows][:, columns]) == pytest.approx(p_value(values))


@given(gains(), st.integers(1, 3))
def test_clients_without_a_difference_do_not_count_when_signs_are_flipped(values, zeros):
    of_clients = over_seeds(values)
    padded = np.concatenate([of_clients, np.zeros(zeros)])
    assert sign_flips(padded) == pytest.approx(sign_flips(of_clients))


@given(gains(clients=(2, 30), seeds=(2, 3)))
def test_two_or_three_seeds_that_disagree_about_the_sign_prove_nothing(values):
    by_seed = values.mean(0)
    if by_seed.min() <= 0 <= by_seed.max():
        assert student(values) >= LEVEL
        assert not p_value(values) < LEVEL


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_correction_only_makes_more_careful_and_keeps_the_order(p_values, random):
    found = corrected(p_values)
    assert all(p <= c <= 1 for p, c in zip(p_values, found, strict=True))
    ordered = [c for _, c in sorted(zip(p_values, found, strict=True))]
    assert ordered == sorted(ordered)
    shuffled = random.sample(range(len(p_values)), len(p_values))
    assert corrected([p_values[i] for i in shuffled]) == [found[i] for i in shuffled]


# -- how often it is right ----------------------------------------------------


def drawn(repetition, clients, seeds, *, mean=0.0, client=1.0, seed=0.0, rest=0.5, skewed=False):
    rng = np.random.default_rng([repetition, clients, seeds])
    own = rng.exponential(size=(clients, 1)) - 1 if skewed else rng.normal(size=(clients, 1))
    shared = seed * rng.normal(size=(1, seeds))
    return mean + client * own + shared + rest * rng.normal(size=(clients, seeds))


WORLDS = {
    "one seed": {"clients": 10, "seeds": 1},
    "few clients": {"clients": 6, "seeds": 3},
    "calm seeds": {"clients": 10, "seeds": 3, "seed": 0.1},
    "noisy seeds": {"clients": 10, "seeds": 3, "seed": 1.0},
    "nothing but seeds": {"clients": 8, "seeds": 4, "client": 0.0, "seed": 1.0, "rest": 0.1},
    "skewed": {"clients": 20, "seeds": 3, "seed": 0.2, "skewed": True},
}


@pytest.mark.parametrize("world", WORLDS)
def test_equal_methods_are_called_equal_and_the_interval_covers_the_truth(world):
    repetitions = [drawn(number, **WORLDS[world]) for number in range(100)]
    ends = [interval(values) for values in repetitions]
    # 95 are expected at least; of 100 repetitions, 92 are within what chance does to that.
    assert sum(low <= 0 <= high for low, high in ends) >= 92
    assert sum(p_value(values) >= LEVEL for values in repetitions) >= 92


def test_a_bootstrap_over_clients_alone_would_take_the_luck_of_a_seed_for_a_difference():
    repetitions = [drawn(number, **WORLDS["noisy seeds"]) for number in range(100)]
    alone = [sign_flips(over_seeds(values)) for values in repetitions]
    assert sum(p >= LEVEL for p in alone) < 80


def test_a_difference_of_two_standard_deviations_is_found():
    found = [p_value(drawn(n, 10, 3, mean=2.0, seed=0.2)) < LEVEL for n in range(60)]
    assert sum(found) >= 54


def test_more_clients_find_smaller_differences():
    few, many = (
        sum(p_value(drawn(n, clients, 3, mean=0.7, seed=0.05)) < LEVEL for n in range(40))
        for clients in (8, 40)
    )
    assert many >= 34 > few + 10
