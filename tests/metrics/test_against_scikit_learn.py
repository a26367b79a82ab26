"""Built-in metrics agree with scikit-learn: ties, one class, weights, tiny sizes."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from motet import metrics
from motet.metrics import names
from motet.metrics._registry import About, resolved

EASY = settings(max_examples=60, deadline=None)


@st.composite
def classified(draw, classes=None, least=1):
    """Draw targets, probabilities with many ties, and whole weights."""
    count = draw(st.integers(2, 5)) if classes is None else classes
    size = draw(st.integers(least, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps = draw(st.sampled_from([2, 5, 1000]))  # few steps: many equal probabilities
    raw = 0.01 + np.round(rng.random((size, count)) * steps) / steps
    present = draw(st.integers(1, count))  # some classes are missing
    weights = rng.integers(0, 4, size) if draw(st.booleans()) else np.ones(size, int)
    weights[rng.integers(size)] += 1
    return rng.integers(0, present, size), raw / raw.sum(1, keepdims=True), weights


def expected(function, *given_, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*given_, **options)


def repeated(weights, *arrays):
    rows = np.repeat(np.arange(len(weights)), weights)
    return (array[rows] for array in arrays)


def assert_same(found, wanted):
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@EASY
@given(classified())
def test_metrics_of_the_most_likely_class(drawn):
    t, p, w = drawn
    said, given_ = p.argmax(1), {"sample_weight": w}
    assert_same(metrics.get("accuracy").score(t, p, w), sk.accuracy_score(t, said, **given_))
    balanced = expected(sk.balanced_accuracy_score, t, said, **given_)
    assert_same(metrics.get("balanced_accuracy").score(t, p, w), balanced)
    kept_t, kept_said = repeated(w, t, said)
    macro = expected(sk.f1_score, kept_t, kept_said, average="macro")
    assert_same(metrics.get("f1_macro").score(t, p, w), macro)
    for c in range(p.shape[1]):
        found = metrics.get(f"recall_{c}").score(t, p, w)
        if (kept_t == c).any():
            wanted = expected(sk.recall_score, kept_t, kept_said, labels=[c], average="macro")
            assert_same(found, wanted)
        else:
            assert math.isnan(found)


@EASY
@given(classified(classes=2))
def test_f1_of_two_classes(drawn):
    t, p, w = drawn
    kept_t, kept_said = repeated(w, t, p.argmax(1))
    found = metrics.get("f1").score(t, p, w)
    if (kept_t == 1).any() or (kept_said == 1).any():
        assert_same(found, expected(sk.f1_score, kept_t, kept_said))
    else:
        assert math.isnan(found)


@EASY
@given(classified(classes=2))
def test_rankings_of_two_classes(drawn):
    t, p, w = drawn
    auroc, auprc = (metrics.get(name).score(t, p, w) for name in ("auroc", "auprc"))
    kept_t, kept_p = repeated(w, t, p)
    if len(set(kept_t)) == 2:
        assert_same(auroc, sk.roc_auc_score(t, p[:, 1], sample_weight=w))
        assert_same(auprc, sk.average_precision_score(kept_t, kept_p[:, 1]))
    else:
        assert math.isnan(auroc)
        assert math.isnan(auprc)


@EASY
@given(classified(classes=4))
def test_rankings_of_several_classes_are_the_mean_over_those_that_are_there(drawn):
    t, p, w = drawn
    kept_t, kept_p = repeated(w, t, p)
    there = [c for c in range(4) if 0 < (kept_t == c).sum() < len(kept_t)]
    for name, function in (("auroc", sk.roc_auc_score), ("auprc", sk.average_precision_score)):
        found = metrics.get(name).score(t, p, w)
        if there:
            assert_same(found, np.mean([function(kept_t == c, kept_p[:, c]) for c in there]))
        else:
            assert math.isnan(found)


@EASY
@given(classified())
def test_probabilities(drawn):
    t, p, w = drawn
    labels = np.arange(p.shape[1])
    wanted = expected(sk.log_loss, t, p, labels=labels, sample_weight=w)
    assert_same(metrics.get("log_loss").score(t, p, w), wanted)
    if p.shape[1] == 2:
        brier = sk.brier_score_loss(t, p[:, 1], sample_weight=w, pos_label=1, labels=labels)
    else:
        brier = sk.brier_score_loss(t, p, sample_weight=w, labels=labels)
    assert_same(metrics.get("brier").score(t, p, w), brier)


@EASY
@given(classified(), st.integers(1, 6))
def test_top_k_prefers_the_first_of_equals_so_that_top_1_is_accuracy(drawn, k):
    t, p, w = drawn
    assert metrics.get("top_1").score(t, p, w) == metrics.get("accuracy").score(t, p, w)
    if p.shape[1] > 2 and k < p.shape[1]:
        # scikit-learn prefers the last of equals, so classes are counted from the other end.
        last, labels = p.shape[1] - 1, np.arange(p.shape[1])
        wanted = sk.top_k_accuracy_score(last - t, p[:, ::-1], k=k, labels=labels, sample_weight=w)
        assert_same(metrics.get(f"top_{k}").score(t, p, w), wanted)


@EASY
@given(classified(classes=4, least=2))
def test_kappa_of_ordered_classes(drawn):
    t, p, w = drawn
    kept_t, kept_said = repeated(w, t, p.argmax(1))
    wanted = expected(sk.cohen_kappa_score, kept_t, kept_said, weights="quadratic")
    found = metrics.get("kappa").score(t, p, w)
    if math.isnan(wanted) or (set(kept_t) == set(kept_said) and len(set(kept_t)) == 1):
        assert math.isnan(found)
    else:
        assert_same(found, wanted)


@st.composite
def label_sets(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, labels = draw(st.integers(1, 20)), draw(st.integers(1, 4))
    t = (rng.random((size, labels)) < draw(st.sampled_from([0.0, 0.3, 1.0]))).astype(int)
    return t, np.clip(np.round(rng.random((size, labels)), 1), 0.01, 0.99)


@EASY
@given(label_sets())
def test_label_sets(drawn):
    t, p = drawn
    said = (p > 0.5).astype(int)
    assert_same(metrics.get("exact_match").score(t, p), (said == t).all(1).mean())
    assert_same(metrics.get("label_accuracy").score(t, p), 1 - sk.hamming_loss(t, said))
    by_label = [sk.log_loss(t[:, c], p[:, c], labels=[0, 1]) for c in range(t.shape[1])]
    assert_same(metrics.get("log_loss").score(t, p), np.mean(by_label))
    there = [c for c in range(t.shape[1]) if 0 < t[:, c].sum() < len(t)]
    areas = [sk.roc_auc_score(t[:, c], p[:, c]) for c in there]
    assert_same(metrics.get("auroc").score(t, p), np.mean(areas) if there else math.nan) if (
        there
    ) else None
    known = [c for c in range(t.shape[1]) if t[:, c].any() or said[:, c].any()]
    found = metrics.get("f1_macro").score(t, p)
    if known:
        assert_same(found, np.mean([expected(sk.f1_score, t[:, c], said[:, c]) for c in known]))
    else:
        assert math.isnan(found)


@EASY
@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.sampled_from([(), (1,), (3,)]))
def test_values(seed, size, width):
    rng = np.random.default_rng(seed)
    t, p = rng.normal(100, 5, (2, size, *width))
    w = rng.integers(1, 4, size)
    given_ = {"sample_weight": w}
    assert_same(metrics.get("rmse").score(t, p, w), sk.mean_squared_error(t, p, **given_) ** 0.5)
    assert_same(metrics.get("mae").score(t, p, w), sk.mean_absolute_error(t, p, **given_))
    r2 = metrics.get("r2").score(t, p, w)
    if size > 1:
        assert r2 == pytest.approx(sk.r2_score(t, p, **given_), rel=1e-6)
    else:
        assert math.isnan(r2)


def test_r2_is_undefined_for_a_constant():
    assert math.isnan(metrics.get("r2").score(np.full(5, 1e6), np.arange(5.0)))


EVERY = [m for kind in ("binary", "multiclass", "ordinal") for m in names(kind)]


@pytest.mark.parametrize("name", sorted({n for n in EVERY if n not in ("recall", "f1")}))
@EASY
@given(classified(classes=3))
def test_a_resample_is_the_score_of_repeated_examples(name, drawn):
    t, p, w = drawn
    metric = metrics.get(name)
    counts = np.stack([w, np.ones(len(t), int), np.roll(w, 1)])
    found = metric.resampled(t, p, counts)
    for row, value in zip(counts, found, strict=True):
        kept_t, kept_p = repeated(row, t, p)
        wanted = metric.score(kept_t, kept_p)
        assert value == pytest.approx(wanted, rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "ordinal", "multilabel", "regression"])
def test_every_metric_stays_in_its_range_and_knows_its_direction(kind):
    rng = np.random.default_rng(0)
    for name in names(kind):
        if name == "top_5":  # refused for so few classes
            continue
        (metric, *_) = resolved([name], About(kind, {"binary": 2}.get(kind, 3)))
        if kind == "regression":
            t = rng.normal(size=50)
            good, bad = t + 0.01 * rng.normal(size=50), rng.normal(size=50)
        elif kind == "multilabel":
            t = rng.integers(0, 2, (50, 3))
            good, bad = 0.9 * t + 0.05, rng.random((50, 3))
        else:
            classes = {"binary": 2}.get(kind, 3)
            t = rng.integers(0, classes, 50)
            good = np.eye(classes)[t] * 0.8 + 0.2 / classes
            bad = rng.dirichlet(np.ones(classes), 50)
        better, worse = metric.score(t, good), metric.score(t, bad)
        assert metric.low <= better <= metric.high
        assert metric.low <= worse <= metric.high
        assert metric.is_better(better, worse), name


def test_predictions_that_are_not_finite_are_wrong_classes_and_have_no_other_score():
    t = np.array([0, 1, 1])
    p = np.array([[0.9, 0.1], [np.nan, np.nan], [0.2, 0.8]])
    assert metrics.get("accuracy").score(t, p) == pytest.approx(2 / 3)
    assert metrics.get("recall_1").score(t, p) == 0.5
    for name in ("auroc", "auprc", "log_loss", "brier", "ece"):
        assert math.isnan(metrics.get(name).score(t, p)), name
    for name in ("auroc", "log_loss", "brier", "ece"):  # the spoiled one is not drawn
        assert math.isfinite(metrics.get(name).resampled(t, p, [[1, 0, 1]])[0]), name
