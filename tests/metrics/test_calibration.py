"""Reliability curves and the expected calibration error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from motet import metrics
from motet.metrics import reliability_curve


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(1, 15))
def test_the_curve_of_two_classes_is_that_of_scikit_learn(seed, size, bins):
    rng = np.random.default_rng(seed)
    t, positive = rng.integers(0, 2, size), np.round(rng.random(size), 2)
    p = np.stack([1 - positive, positive], 1)
    curve = reliability_curve(t, p, bins)
    if len(set(t)) == 2:
        observed, predicted = calibration_curve(t, positive, n_bins=bins)
        assert curve.observed == pytest.approx(observed)
        assert curve.predicted == pytest.approx(predicted)
    assert curve.counts.sum() == size
    distance = (curve.counts * abs(curve.observed - curve.predicted)).sum() / size
    assert metrics.get(f"ece={bins}").score(t, p) == pytest.approx(distance)


def test_with_more_classes_the_confidence_of_the_most_likely_one_counts():
    p = np.array([[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    t = np.array([0, 1, 0])  # right at 0.6 and 0.8, wrong at 0.4
    assert metrics.get("ece").score(t, p) == pytest.approx((0.4 + 0.2 + 0.4) / 3)


def test_probabilities_that_come_true_as_often_as_they_say_have_no_error():
    p = np.array([[0.75, 0.25]] * 4)
    assert metrics.get("ece").score([0, 0, 0, 1], p) == 0
