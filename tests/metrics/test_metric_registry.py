"""Metrics by name, users' own ones, and requests that are refused with a way out."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import fbeta_score, matthews_corrcoef, roc_auc_score

from motet import metrics
from motet.errors import RequestError
from motet.metrics import Metric, metric
from motet.metrics._registry import DEFAULTS, About, is_higher_better, names, resolved

T = np.array([0, 1, 1, 0, 1])
P = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.9, 0.1], [0.2, 0.8]])


def missed_score(targets, predictions):
    return float(np.mean(predictions[targets == 1] > 0.5)) if (targets == 1).any() else math.nan


@metric(higher_is_better=False, needs="classes", kinds=["binary"])
def missed(targets, said):
    return float(np.mean((targets == 1) & (said == 0)))


def nothing_known(targets, predictions):
    return 0.0


@pytest.mark.parametrize("kind", DEFAULTS)
def test_every_kind_of_task_has_a_usual_metric_among_its_metrics(kind):
    (found,) = resolved(None, About(kind, 3, (1.0, 2.0)))
    assert found.name == DEFAULTS[kind]
    assert kind in found.kinds
    assert found.name in names(kind)


@pytest.mark.parametrize("kind", DEFAULTS)
def test_every_listed_metric_can_be_asked_for(kind):
    found = resolved(names(kind), About(kind, 6, (1.0, 2.0)))
    assert len({one.name for one in found}) == len(found)
    assert all(one.about for one in found)


def test_the_first_metric_decides_and_recall_is_one_metric_per_class():
    found = resolved(["log_loss", "recall"], About("multiclass", 3))
    assert [one.name for one in found] == ["log_loss", "recall_0", "recall_1", "recall_2"]


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ("auroc", "regression", "use one of rmse, mae, r2"),
        ("rmse", "binary", "is for regression tasks, and this one is binary"),
        ("f1", "multiclass", "is for binary tasks"),
        ("c_index", "multiclass", "survival"),
        ("auroch", "binary", 'did you mean "auroc"'),
        ("recall_7", "multiclass", "classes run from 0 to 2"),
        ("recall=x", "multiclass", 'expects whole numbers after "=", got "x"'),
        ("top_k", "multiclass", 'such as "top_2"'),
        ("top_0", "multiclass", "1 or more"),
        ("ece=1,2", "multiclass", "takes one number"),
        ("nowhere:function", "binary", "cannot be imported"),
        ("math:pi", "binary", "a function was expected"),
        ("sklearn.metrics:matthews_corrcoef", "binary", "matthews_corrcoef=higher"),
        ("sklearn.metrics:matthews_corrcoef=best", "binary", "=higher"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused_with_a_way_out(asked, kind, said):
    with pytest.raises(RequestError, match=said):
        resolved([asked], About(kind, 3))


def test_a_metric_is_named_once_and_there_is_at_least_one():
    with pytest.raises(RequestError, match="named twice"):
        resolved(["auroc", "accuracy", "auroc"], About("binary", 2))
    with pytest.raises(RequestError, match="at least one"):
        resolved([], About("binary", 2))


def test_scikit_learns_functions_are_metrics_by_their_path():
    assert metrics.get("sklearn.metrics:roc_auc_score").score(T, P) == roc_auc_score(T, P[:, 1])
    own = metrics.get("sklearn.metrics:matthews_corrcoef=higher")
    assert own.name == "sklearn.metrics:matthews_corrcoef"
    assert own.score(T, P) == matthews_corrcoef(T, P.argmax(1))
    assert not metrics.get("sklearn.metrics:log_loss").higher_is_better
    wanted = metrics.get("log_loss").score(T, P)
    assert metrics.get("sklearn.metrics:log_loss").score(T, P) == pytest.approx(wanted)


def test_an_own_function_reads_probabilities_or_classes_and_may_be_undefined():
    assert metrics.get(missed_score).score(T, P) == pytest.approx(2 / 3)
    assert math.isnan(metrics.get(missed_score).score([0, 0], P[:2]))
    assert missed.score(T, P) == pytest.approx(1 / 5)
    assert isinstance(missed, Metric)
    with pytest.raises(RequestError, match="higher_is_better"):
        metrics.get(nothing_known)
    with pytest.raises(RequestError, match="binary tasks"):
        resolved([missed], About("multiclass", 3))


def test_an_own_function_is_called_with_repeated_examples_for_a_resample():
    counts = [[1, 1, 1, 1, 1], [0, 2, 1, 0, 0]]
    assert metrics.get(missed_score).resampled(T, P, counts).tolist() == pytest.approx([2 / 3] * 2)


@pytest.mark.parametrize("reason", [ZeroDivisionError("no positives"), SystemExit(0)], ids=repr)
def test_an_own_function_that_fails_is_named_with_its_reason(reason):
    @metric(higher_is_better=True)
    def broken(targets, predictions):
        raise reason

    failed = f'"broken" failed on 5 examples: {type(reason).__name__}'
    with pytest.raises(RequestError, match=failed):
        broken.score(T, P)


@pytest.mark.parametrize(
    "returned",
    [math.inf, -math.inf, "0.5", None, np.zeros(3), [1, [2, 3]], {"score": 1}, 1j, object()],
    ids=lambda value: str(type(value).__name__),
)
def test_what_is_not_one_finite_number_is_refused(returned):
    own = metric(lambda targets, predictions: returned, higher_is_better=True, name="odd")
    with pytest.raises(RequestError, match=r'"odd" returned .* on 5 examples') as refused:
        own.score(T, P)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("returned", [0.5, np.float32(0.5), np.array([0.5]), torch.tensor(0.5)])
def test_one_number_may_come_in_any_form(returned):
    own = metric(lambda targets, predictions: returned, higher_is_better=True)
    assert own.score(T, P) == 0.5


def test_a_function_that_writes_to_its_arrays_changes_nothing():
    def careless_score(targets, predictions):
        targets[:], predictions[:] = 0, 0
        return 0.5

    targets, predictions = np.array(T), np.array(P)
    assert metrics.get(careless_score).score(targets, predictions) == 0.5
    assert (targets == T).all()
    assert (predictions == P).all()


def test_a_function_that_fails_on_a_resample_is_undefined_there():
    @metric(higher_is_better=True)
    def two_classes(targets, predictions):
        first, second = np.unique(targets)
        return float(second - first)

    assert np.isnan(two_classes.resampled(T, P, [[1, 1, 1, 1, 1], np.array(T) == 1])).tolist() == [
        False,
        True,
    ]


def test_predictions_that_are_not_finite_have_no_value_of_an_own_metric():
    own = metrics.get("sklearn.metrics:roc_auc_score")  # which refuses NaN
    assert math.isnan(own.score(T, np.full_like(P, np.nan)))


def test_a_partial_function_is_known_by_the_name_of_the_function():
    own = metrics.get(partial(fbeta_score, beta=2))
    assert (own.name, own.higher_is_better, own.needs) == ("fbeta_score", True, "classes")


def test_a_dotted_path_is_answered_with_the_form_that_works():
    with pytest.raises(RequestError, match=r'as "sklearn\.metrics:roc_auc_score"'):
        metrics.get("sklearn.metrics.roc_auc_score")


def test_a_module_that_cannot_be_imported_is_refused_with_its_reason(tmp_path, monkeypatch):
    (tmp_path / "half_written_metric.py").write_text("def score(targets, predictions:\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError, match="cannot be imported: SyntaxError"):
        metrics.get("half_written_metric:score")


def test_directions_are_known_by_name():
    assert [is_higher_better(n) for n in ("accuracy", "rmse", "ece=5", "nowhere:x")] == [
        True,
        False,
        False,
        True,
    ]


def test_predictions_and_weights_must_match_the_targets():
    with pytest.raises(RequestError, match="as many predictions as targets"):
        metrics.get("accuracy").score(T, P[:2])
    with pytest.raises(RequestError, match="a weight for each of 5 examples"):
        metrics.get("accuracy").score(T, P, [1.0, 2.0])


def test_no_examples_have_no_score():
    for name in names("binary"):
        if name != "recall":
            assert math.isnan(metrics.get(name).score(T[:0], P[:0]))
