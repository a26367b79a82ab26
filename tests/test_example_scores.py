"""Scores of single examples: what a metric is made of, whatever the metric."""

import numpy as np
import pytest

import motet
from motet._engine.examples import SiteExamples
from motet._verdict.example_scores import BLOCKS, example_scores

RNG = np.random.default_rng(0)


def site(count, *, rng=RNG, shift=1.0):
    targets = np.arange(count) % 2
    score = 1 / (1 + np.exp(-(rng.normal(size=count) + shift * (2 * targets - 1))))
    predictions = np.stack([1 - score, score], axis=1)
    correct = (predictions.argmax(1) == targets).astype(float)
    loss = -np.log(predictions[np.arange(count), targets])
    return SiteExamples("a", np.arange(count), targets, predictions, loss, correct)


@pytest.mark.parametrize("name", ["accuracy", "log_loss", "auroc", "brier", "f1"])
@pytest.mark.parametrize("count", [12, 40, 150])
def test_their_mean_is_the_score_and_larger_is_better(name, count):
    metric, examples = motet.metrics.get(name), site(count)
    values = example_scores(examples, metric)
    sign = 1 if metric.higher_is_better else -1
    whole = sign * metric.score(examples.targets, examples.predictions)
    assert values.mean() == pytest.approx(whole)
    means = name in ("accuracy", "log_loss")
    assert len(values) == (count if means else min(count, BLOCKS))


def test_of_a_mean_they_are_the_examples():
    examples, brier = site(30), motet.metrics.get("brier")
    values = example_scores(examples, brier)
    alone = [brier.score(examples.targets[[i]], examples.predictions[[i]]) for i in range(30)]
    assert values == pytest.approx([-value for value in alone])


def test_their_spread_is_the_error_of_an_auroc():
    """DeLong's variance is that of placements, and agrees with the jackknife's."""
    auroc, errors, scores = motet.metrics.get("auroc"), [], []
    for number in range(120):
        examples = site(60, rng=np.random.default_rng(number))
        values = example_scores(examples, auroc)
        errors.append(values.var(ddof=1) / len(values))
        scores.append(values.mean())
    assert np.mean(errors) == pytest.approx(np.var(scores, ddof=1), rel=0.35)
    positive, negative = (examples.predictions[examples.targets == k, 1] for k in (1, 0))
    placed = (positive[:, None] > negative[None]).astype(float)
    delong = placed.mean(1).var(ddof=1) / 30 + placed.mean(0).var(ddof=1) / 30
    assert errors[-1] == pytest.approx(delong, rel=0.1)


def test_where_a_metric_is_undefined_without_an_example_there_is_no_test():
    examples = site(10)
    lonely = SiteExamples(
        "a",
        examples.example,
        np.r_[1, np.zeros(9, int)],
        examples.predictions,
        examples.loss,
        examples.correct,
    )
    assert np.isnan(example_scores(lonely, motet.metrics.get("auroc"))).all()


def test_predictions_that_were_too_wide_to_keep_leave_accuracy_and_loss():
    wide = SiteExamples(
        "a",
        *(getattr(site(9), n) for n in ("example", "targets")),
        None,
        *(getattr(site(9), n) for n in ("loss", "correct")),
    )
    assert np.isfinite(example_scores(wide, motet.metrics.get("accuracy"))).all()
    assert np.isnan(example_scores(wide, motet.metrics.get("auroc"))).all()
