"""Survival metrics agree with lifelines, which FLamby uses, and with scikit-survival."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import utils as lifelines
from sksurv import metrics as survival

from motet import metrics
from motet.errors import RequestError
from motet.metrics._survival import curve_losses
from motet.task import DiscreteHazard

EASY = settings(max_examples=60, deadline=None)


@st.composite
def followed(draw, least=2):
    """Draw times with ties, events and predicted scores with ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.integers(least, 30))
    time = rng.integers(1, draw(st.sampled_from([4, 10, 500])), size).astype(float)
    event = rng.random(size) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    score = np.round(rng.normal(size=size), draw(st.sampled_from([0, 3])))
    return np.stack([time, event], 1), score


@EASY
@given(followed())
def test_the_c_index_is_that_of_lifelines_and_scikit_survival(drawn):
    t, score = drawn
    found = metrics.get("c_index").score(t, score)
    try:
        wanted = lifelines.concordance_index(t[:, 0], score, t[:, 1])
    except ZeroDivisionError:  # no pair can be compared
        assert math.isnan(found)
        return
    assert found == pytest.approx(wanted)
    censored = survival.concordance_index_censored(t[:, 1] > 0, t[:, 0], -score)[0]
    assert found == pytest.approx(censored)


@EASY
@given(followed(least=8), st.integers(2, 6))
def test_the_integrated_brier_score_is_that_of_scikit_survival(drawn, bins):
    t, _ = drawn
    time, event = t[:, 0], t[:, 1] > 0
    times = np.unique(np.quantile(time, np.linspace(0.1, 0.8, bins)))
    times = times[(times >= time.min()) & (times < time.max())]
    # Where everybody else has been censored, scikit-survival divides by 0 and refuses.
    last_censored = not event[time == time.max()].all()
    if len(times) < 2 or not last_censored or not event.any():
        return
    rng = np.random.default_rng(len(t))
    curves = np.sort(rng.random((len(t), len(times))), axis=1)[:, ::-1]
    known = np.array(list(zip(event, time, strict=True)), dtype=[("e", bool), ("t", float)])
    wanted = survival.integrated_brier_score(known, known, curves, times)
    found = metrics.get("integrated_brier", times=times).score(t, curves)
    assert found == pytest.approx(wanted)


@EASY
@given(followed(least=3))
def test_resamples_are_scores_of_repeated_examples(drawn):
    t, score = drawn
    rng = np.random.default_rng(len(t))
    counts = rng.multinomial(len(t), np.full(len(t), 1 / len(t)), size=3)
    curves = np.sort(rng.random((len(t), 3)), axis=1)[:, ::-1]
    for metric, p in (
        (metrics.get("c_index"), score),
        (metrics.get("integrated_brier", times=(1, 2, 3)), curves),
    ):
        for row, value in zip(counts, metric.resampled(t, p, counts), strict=True):
            rows = np.repeat(np.arange(len(t)), row)
            wanted = metric.score(t[rows], p[rows])
            assert value == pytest.approx(wanted, nan_ok=True)


def likelihood(times, outputs, time, event):
    """Write the likelihood of one example out, bin by bin."""
    hazards, value = 1 / (1 + np.exp(-outputs)), 1.0
    for start, end, hazard in zip((0, *times), times, hazards, strict=False):
        if (event and start < time <= end) or (event and start == 0 and time == 0):
            return value * hazard
        if time < end or (event and time <= end):
            return value
        value *= 1 - hazard
    return value


@EASY
@given(followed(), st.lists(st.integers(1, 12), min_size=1, max_size=5, unique=True))
def test_the_hazard_loss_is_the_negative_log_likelihood(drawn, ends):
    t, _ = drawn
    times = tuple(float(end) for end in sorted(ends))
    loss = DiscreteHazard(times)
    outputs = torch.from_numpy(np.random.default_rng(0).normal(size=(len(t), len(times))))
    found = loss(outputs, torch.from_numpy(t)).numpy()
    wanted = [
        -math.log(likelihood(times, row, time, event))
        for row, (time, event) in zip(outputs.numpy(), t, strict=True)
    ]
    assert found == pytest.approx(wanted)
    from motet._core.criteria import criterion

    curves = criterion(loss, None).probabilities(outputs).numpy()
    assert curve_losses(times, t, curves) == pytest.approx(wanted)
    assert (np.diff(curves, axis=1) <= 0).all()


def test_time_bins_are_positive_and_ascending():
    for times in ((), (0.0, 1.0), (2.0, 1.0), (1.0, 1.0)):
        with pytest.raises(RequestError, match="ascending"):
            DiscreteHazard(times)
    with pytest.raises(RequestError, match="no example has an event"):
        DiscreteHazard.of([1.0, 2.0], [0, 0])
