"""The gain of a single site: exact tests, laws, and what is said about it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from motet._verdict.chance import UNKNOWN
from motet._verdict.judging import Judgement
from motet._verdict.seed_luck import due_to_examples, largest_of, own_luck, seed_luck
from motet._verdict.site_gains import (
    SiteGain,
    SiteState,
    sign_flips,
    site_gains,
    site_states,
)
from motet._verdict.sites import site_verdicts
from motet._verdict.spreads import estimated, known

NO_LUCK = known(np.zeros(1))


def differences(gained, lost, same, seeds=1):
    column = [1.0] * gained + [-1.0] * lost + [0.0] * same
    return np.repeat(np.array(column)[:, None], seeds, axis=1)


def judged(*sites, margin=0.05, luck=None):
    luck = luck or seed_luck([sites], methods=2)[0]
    found = site_gains(sites, luck=(luck, luck), margin=margin, bounded=True)
    return found, site_states(found), site_states(found, in_runs=True)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_with_one_seed_sign_flips_are_mcnemars_exact_test(gained, lost, same):
    values = differences(gained, lost, same)
    if gained + lost:
        expected = stats.binomtest(gained, gained + lost).pvalue
        assert sign_flips(values) == pytest.approx(expected)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_with_several_seeds_sign_flips_count_all_patterns(sums):
    values = np.array([[k / 3] * 3 for k in sums])
    patterns = np.array(np.meshgrid(*[[1, -1]] * len(sums))).reshape(len(sums), -1)
    flipped = np.abs(np.array(sums) @ patterns)
    assert sign_flips(values) == pytest.approx((flipped >= abs(sum(sums))).mean())


def test_thousands_of_examples_that_change_are_tested_exactly_too():
    values = differences(1300, 1100, 500)
    expected = stats.binomtest(1300, 2400).pvalue
    assert sign_flips(values) == pytest.approx(expected, rel=1e-6)


def test_scores_that_are_not_counts_have_no_sign_flip_test():
    assert sign_flips(np.array([[0.31], [0.12]])) == 0.0


def test_a_clear_gain_and_a_clear_loss_are_told_with_three_seeds():
    found, states, _ = judged(differences(25, 1, 60, 3), differences(1, 25, 60, 3))
    assert states == [SiteState("helped"), SiteState("harmed")]
    assert found[0].low > 0 > found[1].high
    assert found[0].mean == pytest.approx(24 / 86)


def test_with_one_seed_nothing_is_claimed_beyond_the_run():
    _, states, in_runs = judged(differences(25, 1, 60))
    assert states == [SiteState("cannot tell")]
    assert in_runs == [SiteState("helped")]


def test_many_examples_without_a_change_show_that_there_is_no_difference():
    _, states, _ = judged(differences(3, 3, 1000, 3))
    assert states == [SiteState("no difference")]


def test_few_examples_without_a_change_show_nothing():
    found, states, _ = judged(differences(0, 0, 25, 3))
    assert states == [SiteState("cannot tell")]
    assert found[0].high > 0.05


def test_five_examples_that_all_change_prove_nothing():
    _, states, in_runs = judged(differences(5, 0, 0, 3))
    assert (states, in_runs) == ([SiteState("cannot tell")], [SiteState("cannot tell")])


def test_luck_of_seeds_that_all_sites_share_makes_more_careful():
    values = differences(25, 1, 60, 3)
    lucky = judged(values, values, luck=known(np.array([0.3**2])))
    assert lucky[1] == [SiteState("cannot tell")] * 2
    assert lucky[2] == [SiteState("helped")] * 2


def test_seeds_that_disagree_at_one_site_make_that_site_uncertain():
    steady = differences(30, 5, 65, 3)
    fickle = np.column_stack(
        [differences(80, 0, 20), differences(10, 0, 90), -differences(30, 0, 70)]
    )
    found, states, _ = judged(steady, *[differences(2, 2, 96, 3)] * 4, fickle)
    assert states[-1].state == "cannot tell"
    assert found[-1].high - found[-1].low > 1.5 * (found[0].high - found[0].low)


def noisy(rng, examples, luck, seeds=2):
    """Draw gains of single examples, with luck of each seed: [examples, seeds]."""
    return luck + rng.normal(size=(examples, seeds))


def test_luck_that_all_sites_share_counts_as_the_largest_of_all_methods():
    luck = estimated(np.array([1.0, 4.0]), np.array([2.0, 30.0]))
    largest = largest_of(luck, 7)
    for risk in (0.05, 0.01):  # that any of seven is so large, at most seven times that of one
        assert (largest.reach(risk / 2) > 0.9 * luck.reach(risk / 2 / 7)).all()
    assert largest_of(luck, 1).reach(0.01) == pytest.approx(luck.reach(0.01))


def test_pairs_tell_each_other_that_sites_have_no_luck_of_their_own():
    rng = np.random.default_rng(1)
    pairs = [[noisy(rng, n, 0.0) for n in (5, 12, 40, 400, 900)] for _ in range(8)]
    one = np.mean([own_luck([pair], 9).reach(0.025) for pair in pairs])
    together = own_luck(pairs, 9).reach(0.025)
    assert together.mean() < 0.9 * one


def test_a_tiny_site_borrows_the_noise_of_an_example_from_the_others():
    rng = np.random.default_rng(2)
    sites = [noisy(rng, n, 0.0, seeds=3) for n in (300, 300, 300)]
    unchanged = np.ones((2, 3))  # two examples that happen not to differ from seed to seed
    noise = due_to_examples([*sites, unchanged])
    assert noise[:3] == pytest.approx(1 / 300, rel=0.2)
    assert 0.2 < noise[3] < 0.6


def test_many_sites_ask_for_more_evidence():
    site = differences(9, 0, 60, 3)
    few, many = judged(site)[1][0], judged(site, *[differences(3, 3, 60, 3)] * 200)[1][0]
    assert few == SiteState("helped")
    assert many != SiteState("helped")


def test_scores_of_any_metric_are_tested_by_student():
    rng = np.random.default_rng(0)
    values = 0.5 + rng.normal(size=(40, 1)) * np.ones((1, 3))
    (found,) = site_gains([values], luck=(NO_LUCK, NO_LUCK), margin=0.1, bounded=False)
    expected = stats.ttest_1samp(values[:, 0], 0).pvalue
    # A little more careful: some examples of any sample weigh more than others.
    assert expected <= found.p_value <= 4 * expected


def scores(*values):
    column = np.array(values, dtype=float)
    found = site_gains(
        [np.repeat(column[:, None], 3, 1)], luck=(NO_LUCK, NO_LUCK), margin=0.1, bounded=False
    )
    return found[0], site_states(found)[0].state


def test_a_score_that_few_examples_decide_is_not_certain():
    # Such are the parts of an AUROC with two positives among 40 examples.
    few, state = scores(*([0.05] * 38), 2.4, 2.6)
    assert state == "cannot tell"
    assert few.p_value > 0.05
    _, state = scores(*np.linspace(0.1, 0.3, 40))
    assert state == "helped"


def test_equal_scores_of_few_examples_show_neither_a_gain_nor_that_there_is_none():
    assert scores(*([0.5] * 3))[1] == "cannot tell"
    assert scores(*([0.0] * 18))[1] == "cannot tell"
    assert scores(*([0.5] * 30))[1] == "helped"
    assert scores(*([0.0] * 120))[1] == "no difference"


@pytest.mark.parametrize("values", [np.zeros((0, 2)), np.full((9, 2), np.nan), np.ones((1, 2))])
def test_sites_without_usable_examples_cannot_be_told(values):
    _, states, in_runs = judged(values, differences(3, 3, 60, 2))
    assert (states[0], in_runs[0]) == (SiteState("cannot tell"), SiteState("cannot tell"))


@given(st.integers(0, 20), st.integers(0, 20), st.integers(2, 40), st.integers(1, 3))
def test_the_other_side_sees_the_same_with_the_signs_changed(gained, lost, same, seeds):
    values = differences(gained, lost, same, seeds)
    (there,), *_ = judged(values)
    (back,), *_ = judged(-values)
    assert (back.mean, back.low, back.high) == pytest.approx(
        (-there.mean, -there.high, -there.low), abs=1e-12
    )
    assert back.p_in_runs == pytest.approx(there.p_in_runs)


def test_an_interval_ends_at_the_largest_gain_that_a_metric_allows():
    gain = SiteGain(
        mean=0.3,
        low=-0.6,
        high=1.2,
        p_value=0.5,
        p_cautious=0.5,
        p_same=0.5,
        p_in_runs=0.5,
        p_same_in_runs=0.5,
        examples=9,
        seeds=3,
    )
    tell = (SiteState("cannot tell"),)
    found = Judgement(
        mean=UNKNOWN,
        corrected=1.0,
        cautious=1.0,
        corrected_in_runs=1.0,
        sites=(gain,),
        states=tell,
        states_in_runs=tell,
    )
    pair, options = ("fedper", "local"), {"examples": {"a": 9}, "margin": 0.05}
    (ended,) = site_verdicts(pair, {"a": 0.3}, found, most=1.0, **options)
    (free,) = site_verdicts(pair, {"a": 0.3}, found, most=np.inf, **options)
    assert [(site.low, site.high) for site in (ended, free)] == [(-0.6, 1.0), (-0.6, 1.2)]
