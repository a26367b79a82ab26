"""Unknown variances: Student's t by themselves, borrowed strength together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from motet._verdict.spreads import CAUTIOUS, USUAL, Spread, estimated, known, pooled


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 20, 100])
@pytest.mark.parametrize("t", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_one_estimate_alone_is_students_t(freedom, t):
    spread = estimated(np.array([4.0]), np.array([float(freedom)]))
    tail = stats.t.sf(t, freedom)
    assert spread.above(np.array([2.0 * t]))[0] == pytest.approx(tail, rel=0.06, abs=1e-12)


@pytest.mark.parametrize("freedom", [2, 5, 50])
def test_the_reach_is_students_quantile(freedom):
    spread = estimated(np.array([1.0]), np.array([float(freedom)]))
    assert spread.reach(0.025)[0] == pytest.approx(stats.t.isf(0.025, freedom), rel=0.02)


def test_a_certain_variance_gives_the_normal_distribution():
    spread = known(np.array([4.0, 0.0]))
    assert spread.above(np.array([2.0, 1.0])) == pytest.approx([stats.norm.sf(1.0), 0.0])
    assert spread.above(np.array([0.0, 0.0])) == pytest.approx([0.5, 0.5])


def test_variances_add_up_and_are_scaled():
    a, b = known(np.array([1.0, 2.0])), known(np.array([3.0, 4.0]))
    assert a.plus(b).mean() == pytest.approx([4.0, 6.0])
    assert b.beyond(np.array([1.0, 9.0])).mean() == pytest.approx([4.0, 13.0])
    assert b.scaled(0.5).mean() == pytest.approx([1.5, 2.0])


def test_the_sum_of_two_estimates_has_the_tail_of_behrens_and_fisher():
    rng = np.random.default_rng(0)
    first, second = 3 / rng.chisquare(3, 200_000), 2 * 5 / rng.chisquare(5, 200_000)
    expected = stats.norm.sf(4.0 / np.sqrt(first + second)).mean()
    total = estimated(np.array([1.0]), np.array([3.0])).plus(
        estimated(np.array([2.0]), np.array([5.0]))
    )
    assert total.above(np.array([4.0]))[0] == pytest.approx(expected, rel=0.08)


def tail_of(variances, freedom, distance, **options):
    spread = pooled(np.asarray(variances, float), np.full(len(variances), freedom), **options)
    return spread.above(np.full(len(variances), distance))


def test_many_alike_estimates_make_each_of_them_nearly_certain():
    rng = np.random.default_rng(1)
    variances = rng.chisquare(2, size=200) / 2
    tails = tail_of(variances, 2.0, 3.0, independent=200, trust=USUAL)
    assert np.median(tails) < 2 * stats.norm.sf(3.0)
    alone = estimated(np.array([1.0]), np.array([2.0])).above(np.array([3.0]))[0]
    assert np.median(tails) < alone / 5


def test_estimates_that_differ_wildly_borrow_little():
    rng = np.random.default_rng(2)
    variances = np.exp(3 * rng.normal(size=60)) * rng.chisquare(8, size=60) / 8
    spread = pooled(variances, np.full(60, 8.0), independent=60)
    alone = estimated(variances, np.full(60, 8.0))
    ratio = spread.mean() / alone.mean()
    assert 0.5 < np.median(ratio) < 2


def test_one_estimate_among_none_is_nearly_students_t():
    (tail,) = tail_of([1.0], 5.0, 3.0, independent=1, trust=CAUTIOUS)
    assert tail == pytest.approx(stats.t.sf(3.0, 5), rel=0.25)


def test_no_variance_at_all_stays_none():
    spread = pooled(np.zeros(3), np.full(3, 2.0), independent=2)
    assert spread.above(np.ones(3)) == pytest.approx(np.zeros(3))


@given(
    st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=6),
    st.integers(1, 4),
    st.floats(1e-6, 1e6),
)
def test_units_do_not_matter_and_weights_add_up(variances, freedom, scale):
    values = np.array(variances)
    degrees = np.full(len(values), float(freedom))
    spread = pooled(values, degrees, independent=len(values))
    again = pooled(scale * values, degrees, independent=len(values))
    assert spread.weights.sum(1) == pytest.approx(np.ones(len(values)), abs=1e-3)
    distance = np.sqrt(values)
    assert again.above(np.sqrt(scale) * distance) == pytest.approx(
        spread.above(distance), rel=0.03, abs=1e-9
    )


def test_rows_are_selected_by_position():
    spread = Spread(np.array([[1.0], [2.0]]), np.ones((2, 1)))
    assert spread.taken(np.array([1])).values.tolist() == [[2.0]]


def test_what_is_explained_is_certain_and_only_the_rest_is_borrowed():
    """All of the variance is explained: then hardly anything is left to be unsure about."""
    variances = np.random.default_rng(3).chisquare(1, size=9)
    freedom, distance = np.ones(9), np.full(9, 5.0)
    blind = pooled(variances, freedom, independent=9).above(distance)
    aware = pooled(variances, freedom, independent=9, explained=1.0).beyond(np.ones(9))
    assert (aware.above(distance) < blind).all()
    assert aware.above(distance).sum() < blind.sum() / 2
    assert (aware.mean() > 1.0).all()


def test_an_estimate_that_looks_calm_may_still_be_an_outlier():
    alike, freedom = np.full(30, 1.0), np.full(30, 1.0)
    tails = [
        pooled(alike, freedom, independent=30, tests=USUAL.outliers / max(share, 1e-9)).above(
            np.full(30, 9)
        )
        for share in (0.0, 0.1)
    ]
    assert tails[0][0] < 1e-5
    assert tails[1][0] > 1e-4
