"""Metrics of class probabilities and of label sets, for many resamples at once."""

from __future__ import annotations

import numpy as np

from motet.metrics._metric import Array, mean, mean_of_defined, ratio

TINY = 1e-30  # a probability of 0 costs this much in the log loss, not infinity


def predicted_classes(p: Array) -> Array:
    """Return the most likely class, the first of equals; -1 where a prediction is not finite."""
    return np.where(np.isfinite(p).all(-1), p.argmax(-1), -1)


def is_right(t: Array, p: Array) -> Array:
    """Tell which examples are classified correctly."""
    return np.asarray(predicted_classes(p) == t, float)


def accuracy(t: Array, p: Array, w: Array) -> Array:
    """Share of examples whose most likely class is the right one."""
    return mean(is_right(t, p), w)


def recalls(t: Array, p: Array, w: Array) -> Array:
    """Share of each class that is recognized, [resamples, classes]; NaN where it is absent."""
    there = _one_hot(t, p.shape[1])
    return ratio(w @ (there * is_right(t, p)[:, None]), w @ there)


def balanced_accuracy(t: Array, p: Array, w: Array) -> Array:
    """Mean recall of the classes that are there."""
    return mean_of_defined(recalls(t, p, w))


def f1_scores(t: Array, p: Array, w: Array) -> Array:
    """F1 of each class, [resamples, classes]; NaN for a class neither there nor predicted."""
    there, said = _one_hot(t, p.shape[1]), _one_hot(predicted_classes(p), p.shape[1])
    return ratio(2 * (w @ (there * said)), w @ (there + said))


def f1_macro(t: Array, p: Array, w: Array) -> Array:
    """Mean F1 of the classes that are there or predicted; of label sets, of all such labels."""
    if t.ndim > 1:
        said = (p > 0.5) & np.isfinite(p)
        return mean_of_defined(ratio(2 * (w @ (t * said)), w @ (t + said)))
    return mean_of_defined(f1_scores(t, p, w))


def f1(t: Array, p: Array, w: Array) -> Array:
    """F1 of class 1."""
    return f1_scores(t, p, w)[:, 1]


def auroc(t: Array, p: Array, w: Array) -> Array:
    """Area under the ROC curve; of several classes or labels, the mean of the defined ones."""
    return _one_against_rest(t, p, w, _areas)


def auprc(t: Array, p: Array, w: Array) -> Array:
    """Average precision; of several classes or labels, the mean of the defined ones."""
    return _one_against_rest(t, p, w, _average_precisions)


def log_loss(t: Array, p: Array, w: Array) -> Array:
    """Mean negative logarithm of the probability of what happened."""
    return mean(log_losses(t, p), w)


def log_losses(t: Array, p: Array) -> Array:
    """Negative logarithm of the probability of what happened, for each example."""
    if t.ndim > 1:
        return np.asarray(-np.log(np.clip(np.where(t > 0, p, 1 - p), TINY, None)).mean(1))
    return np.asarray(-np.log(np.clip(_chosen(t, p), TINY, None)))


def brier(t: Array, p: Array, w: Array) -> Array:
    """Squared error of probabilities: of class 1 for two classes, summed over more of them."""
    if t.ndim > 1:
        return mean(np.square(p - t).mean(1), w)
    if p.shape[1] == 2:
        return mean(np.square(p[:, 1] - t), w)
    return mean(np.square(p - _one_hot(t, p.shape[1])).sum(1), w)


def top(k: int, t: Array, p: Array, w: Array) -> Array:
    """Share of examples whose class is among the k most likely; of equals the first ones."""
    own = _chosen(t, p)[:, None]
    before = np.arange(p.shape[1]) < t[:, None]
    ahead = ((p > own) | ((p == own) & before)).sum(1)
    return mean(((ahead < k) & np.isfinite(p).all(1)).astype(float), w)


def token_accuracy(ignore: tuple[int, ...], t: Array, p: Array, w: Array) -> Array:
    """Accuracy over the positions whose target is not one of `ignore`."""
    return accuracy(t, p, w * ~np.isin(t, ignore))


def kappa(t: Array, p: Array, w: Array) -> Array:
    """Agreement of ordered classes beyond chance, with squared distances as the cost."""
    said = predicted_classes(p)
    both = ratio(w @ t, w.sum(1)) * ratio(w @ said, w.sum(1))
    by_chance = mean(np.square(t) + np.square(said), w) - 2 * both
    return 1 - ratio(mean(np.square(t - said), w), np.where(by_chance > 1e-12, by_chance, 0.0))


def label_accuracy(t: Array, p: Array, w: Array) -> Array:
    """Share of labels, over all examples, that are set correctly."""
    return mean(_labels_right(t, p).mean(1), w)


def exact_match(t: Array, p: Array, w: Array) -> Array:
    """Share of examples with every label set correctly."""
    return mean(_labels_right(t, p).all(1).astype(float), w)


def _labels_right(t: Array, p: Array) -> Array:
    return np.asarray(((p > 0.5) == (t > 0)) & np.isfinite(p))


def _one_hot(t: Array, classes: int) -> Array:
    return np.asarray(t[:, None] == np.arange(classes), float)


def _chosen(t: Array, p: Array) -> Array:
    return np.take_along_axis(p, t[:, None].astype(np.int64), axis=1)[:, 0]


def _one_against_rest(t: Array, p: Array, w: Array, area: object) -> Array:
    assert callable(area)
    if t.ndim > 1:
        columns = [(t[:, c] > 0, p[:, c]) for c in range(t.shape[1])]
    elif p.shape[1] == 2:
        columns = [(t == 1, p[:, 1])]
    else:
        columns = [(t == c, p[:, c]) for c in range(p.shape[1])]
    found = [area(positive.astype(float), scores, w) for positive, scores in columns]
    return mean_of_defined(np.stack(found, axis=-1))


def _steps(positive: Array, scores: Array, w: Array) -> tuple[Array, Array]:
    """Return the weights of positives and negatives at each distinct score, the highest first."""
    order = np.argsort(-scores, kind="stable")
    sorted_scores = scores[order]
    starts = np.flatnonzero(np.r_[True, sorted_scores[1:] != sorted_scores[:-1]])
    there = w[:, order]
    hits = np.add.reduceat(there * positive[order], starts, axis=1)
    return hits, np.add.reduceat(there, starts, axis=1) - hits


def _areas(positive: Array, scores: Array, w: Array) -> Array:
    hits, misses = _steps(positive, scores, w)
    above = hits.cumsum(1) - hits / 2  # a tie counts half
    all_hits, all_misses = hits.sum(1), misses.sum(1)
    area = ratio((above * misses).sum(1), all_hits * all_misses)
    return _if_finite(area, scores, w)


def _average_precisions(positive: Array, scores: Array, w: Array) -> Array:
    hits, misses = _steps(positive, scores, w)
    found = hits.cumsum(1)
    precision = ratio(found, found + misses.cumsum(1))
    total = hits.sum(1)
    area = ratio((hits * np.nan_to_num(precision)).sum(1), total)
    return _if_finite(np.where(misses.sum(1) > 0, area, np.nan), scores, w)


def _if_finite(values: Array, scores: Array, w: Array) -> Array:
    """Replace the values of rankings that contain a NaN by NaN."""
    spoiled = ~np.isfinite(scores)
    return np.where((w[:, spoiled] > 0).any(1), np.nan, values)
