"""The test of a whole table: laws that hold whatever the numbers of its prior are."""

import numpy as np
import pytest

from motet._verdict.judging import Pair, judged
from motet._verdict.whole_table import EXPECTED, mean_errors, scores_of


def world(number, *, methods=5, clients=10, seeds=3, lead=0.0, luck=0.01, noisy=1.0):
    """Draw scores [methods, clients, seeds]; the second method leads, the last one has luck."""
    rng = np.random.default_rng([11, number])
    sizes = np.full((methods, 1, 1), luck)
    sizes[-1] *= noisy
    drawn = 0.03 * rng.normal(size=(methods, clients, 1))
    drawn = drawn + sizes * rng.normal(size=(methods, 1, seeds))
    drawn = drawn + 0.02 * rng.normal(size=(methods, clients, seeds))
    drawn[1] += lead
    return drawn


def judge(drawn, *, named=True):
    pairs = [
        Pair(gains=score - drawn[0], names=(f"method{i}", "method0") if named else ())
        for i, score in enumerate(drawn)
        if i
    ]
    return judged(pairs, methods=len(drawn), margin=0.05, bounded=False)


def test_scores_are_found_again_from_gains_of_pairs_up_to_what_methods_share():
    drawn = world(0, methods=4)
    names = [("b", "a"), ("d", "c"), ("b", "c")]
    gains = [drawn[1] - drawn[0], drawn[3] - drawn[2], drawn[1] - drawn[2]]
    found = scores_of(names, gains)
    for name, expected in zip("abcd", drawn, strict=True):
        np.testing.assert_allclose(found[name] - found["a"], expected - drawn[0], atol=1e-12)


@pytest.mark.parametrize(
    "gains",
    [
        [np.zeros((4, 2)), np.zeros((4, 3))],  # another seed
        [np.zeros((4, 2)), np.full((4, 2), np.nan)],
    ],
)
def test_pairs_with_different_seeds_or_gaps_are_not_tested_together(gains):
    assert scores_of([("b", "a"), ("c", "a")], gains) is None


def test_pairs_without_a_method_in_common_are_not_tested_together():
    assert scores_of([("b", "a"), ("d", "c")], [np.zeros((4, 2))] * 2) is None


def test_a_method_with_much_luck_does_not_hide_the_lead_of_a_calm_one():
    drawn = [world(number, lead=0.2, noisy=10.0) for number in range(6)]
    together = [judge(scores)[0].sure for scores in drawn]
    alone = [judge(scores, named=False)[0].sure for scores in drawn]
    assert sum(together) >= 5
    assert sum(together) > sum(alone)


def test_equal_methods_are_not_told_apart_and_luck_is_not_taken_for_a_lead():
    found = [judge(world(number, luck=0.03, noisy=5.0)) for number in range(12)]
    assert not any(one.sure for table in found for one in table)
    assert sum(any(one.probable for one in table) for table in found) <= 2


def test_a_claim_and_the_interval_agree():
    for number in range(8):
        for one in judge(world(number, lead=0.06)):
            if one.sure or one.probable:
                assert one.mean.low * one.mean.high > 0


def test_the_order_of_pairs_does_not_matter():
    drawn = world(3, lead=0.1)
    pairs = [Pair(gains=drawn[i] - drawn[0], names=(f"m{i}", "m0")) for i in (1, 2, 3, 4)]
    forth = judged(pairs, methods=5, margin=0.05, bounded=False)
    back = judged(pairs[::-1], methods=5, margin=0.05, bounded=False)[::-1]
    assert [one.corrected for one in forth] == pytest.approx([one.corrected for one in back])


def test_methods_that_never_differ_have_no_error():
    errors = mean_errors(np.zeros((3, 4, 2)), 0.0, EXPECTED)
    assert errors.corrected((0, 1), 0.0) == 1.0
    assert errors.corrected((0, 1), 0.1) < 0.001
