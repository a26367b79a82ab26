"""Metrics by name: the table, families with a parameter, and users' own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from motet.errors import RequestError, nearest
from motet.metrics import _calibration, _classes, _survival, _values
from motet.metrics._metric import Array, Compute, Metric, Needs, TaskKind
from motet.metrics._own import imported, is_path

CLASSES: frozenset[TaskKind] = frozenset({"binary", "multiclass", "ordinal", "sequence"})
LABELS: frozenset[TaskKind] = frozenset({"multilabel"})
VALUES: frozenset[TaskKind] = frozenset({"regression"})
SURVIVAL: frozenset[TaskKind] = frozenset({"survival"})
TWO = "examples of at least two classes"
FAMILIES = {
    "top_k": "top_5: the class is among the 5 most likely",
    "recall": "recall_2: share of class 2 that is recognized; recall: one metric per class",
    "ece": "expected calibration error; ece=10 uses 10 bins instead of 15",
    "next_token_accuracy": "over positions with a target; next_token_accuracy=0,1 ignores 0 and 1",
}


def _metric(
    name: str,
    compute: Compute,
    kinds: frozenset[TaskKind],
    needs: Needs,
    *,
    higher: bool = True,
    **others: Any,
) -> Metric:
    about = (compute.__doc__ or "").split("\n")[0]
    given = {"about": about, **others}
    return Metric(
        name=name, compute=compute, kinds=kinds, needs=needs, higher_is_better=higher, **given
    )


_BOTH = CLASSES | LABELS
_TABLE = {
    metric.name: metric
    for metric in (
        _metric("accuracy", _classes.accuracy, CLASSES, "classes"),
        _metric("balanced_accuracy", _classes.balanced_accuracy, CLASSES, "classes"),
        _metric(
            "f1",
            _classes.f1,
            frozenset({"binary"}),
            "classes",
            defined_if="examples of class 1, or predictions of it",
        ),
        _metric("f1_macro", _classes.f1_macro, _BOTH, "classes"),
        _metric("auroc", _classes.auroc, _BOTH, "probabilities", defined_if=TWO),
        _metric("auprc", _classes.auprc, _BOTH, "probabilities", defined_if=TWO),
        _metric("log_loss", _classes.log_loss, _BOTH, "probabilities", higher=False, high=math.inf),
        _metric("brier", _classes.brier, _BOTH, "probabilities", higher=False, high=2.0),
        _metric(
            "kappa",
            _classes.kappa,
            frozenset({"ordinal"}),
            "classes",
            low=-1.0,
            defined_if="classes that vary",
        ),
        _metric("label_accuracy", _classes.label_accuracy, LABELS, "classes"),
        _metric("exact_match", _classes.exact_match, LABELS, "classes"),
        _metric("rmse", _values.rmse, VALUES, "values", higher=False, high=math.inf),
        _metric("mae", _values.mae, VALUES, "values", higher=False, high=math.inf),
        _metric("r2", _values.r2, VALUES, "values", low=-math.inf, defined_if="values that vary"),
        _metric(
            "c_index",
            _survival.c_index,
            SURVIVAL,
            "curves",
            defined_if="two examples of which one is known to survive the other",
        ),
    )
}
DEFAULTS: dict[TaskKind, str] = {
    "binary": "accuracy",
    "multiclass": "accuracy",
    "ordinal": "accuracy",
    "sequence": "accuracy",
    "multilabel": "label_accuracy",
    "regression": "rmse",
    "survival": "c_index",
}


@dataclass(frozen=True)
class About:
    """What metrics need to know about a task.

    Attributes:
        kind: Kind of the task.
        classes: Number of classes or labels; None for values and survival.
        times: Ends of the time bins, for survival.
    """

    kind: TaskKind
    classes: int | None = None
    times: tuple[float, ...] = ()


def names(kind: TaskKind | None = None) -> tuple[str, ...]:
    """List the metrics by name, all of them or those for one kind of task.

    Args:
        kind: A kind of task; None: all.

    Returns:
        Names for `metrics=` and `--metric`.

    Example:
        >>> names("regression")
        ('rmse', 'mae', 'r2')
    """
    found = [*_TABLE.values(), *_examples()]
    return tuple(m.name for m in found if kind is None or kind in m.kinds)


def get(metric: str | Metric | Callable[..., Any], *, times: Sequence[float] = ()) -> Metric:
    """Return a metric: by name, as "module:function", as a function, or as it is.

    Args:
        metric: A name of `names()`, a family with its parameter ("top_5", "recall_2", "ece=10",
            "next_token_accuracy=0,1"), an own one as "module:function", or an object.
        times: Ends of the time bins of survival curves, which "integrated_brier" needs.

    Returns:
        The metric.

    Raises:
        RequestError: There is no such metric, or it cannot be imported.

    Example:
        >>> get("top_5").name, get("log_loss").higher_is_better
        ('top_5', False)
        >>> get("integrated_brier", times=(365, 730, 1095)).higher_is_better
        False
    """
    if isinstance(metric, Metric):
        return metric
    if not isinstance(metric, str):
        return imported(metric)
    if metric in _TABLE:
        return _TABLE[metric]
    if is_path(metric):
        return imported(metric)
    made = _of_family(metric, tuple(times))
    if made is None:
        known = [*_TABLE, *FAMILIES, "integrated_brier"]
        module, _, function = metric.rpartition(".")
        own = f"{module}:{function}" if module else "module:function"
        raise RequestError(
            f'no metric is called "{metric}"; {nearest(metric.lower(), known)}. Name your own '
            f'as "{own}".',
            option="metrics",
        )
    return made


def resolved(
    asked: Sequence[str | Metric | Callable[..., Any]] | None, about: About
) -> tuple[Metric, ...]:
    """Return the metrics of a run, the deciding one first; refuse those that do not fit the task.

    Raises:
        RequestError: A metric is unknown, named twice, or not defined for the kind of task.
    """
    if asked is not None and not asked:
        raise RequestError(
            f'metrics is empty; name at least one, such as "{DEFAULTS[about.kind]}".'
        )
    wanted = [DEFAULTS[about.kind]] if asked is None else list(asked)
    # A task without time bins is refused below, for what it is.
    times = about.times if about.kind == "survival" else (0.0, 1.0)
    found = [get(one, times=times) for name in wanted for one in _expanded(name, about.classes)]
    for metric in found:
        _check_fits(metric, about)
    twice = [m.name for n, m in enumerate(found) if m.name in {o.name for o in found[:n]}]
    if twice:
        raise RequestError(f'the metric "{twice[0]}" is named twice; name it once.')
    return tuple(found)


def is_higher_better(name: str) -> bool:
    """Tell the direction of a metric by its name; own metrics that cannot be found count as higher.

    Results carry the direction with them, so this is only for those that do not.
    """
    try:
        return get(name, times=(0.0, 1.0)).higher_is_better
    except Exception:
        return True


def _expanded(name: Any, classes: int | None) -> list[Any]:
    """Write "recall" out as one metric per class."""
    if name == "recall":
        return [f"recall_{number}" for number in range(classes or 0)] or ["recall_0"]
    return [name]


def _check_fits(metric: Metric, about: About) -> None:
    if about.kind not in metric.kinds:
        few = about.classes is not None and about.classes <= 5
        fitting = ", ".join(name for name in names(about.kind) if not (few and name == "top_5"))
        raise RequestError(
            f'the metric "{metric.name}" is for {_listed(metric.kinds)} tasks, and this one is '
            f"{about.kind}; use one of {fitting}."
        )
    if about.classes is not None:
        _check_number(metric.name, about.classes)
    if metric.name == "integrated_brier" and len(about.times) < 2:
        raise RequestError(
            "integrated_brier needs at least two time bins; give the loss more of them."
        )


def _listed(kinds: frozenset[TaskKind]) -> str:
    *most, last = sorted(kinds)
    return f"{', '.join(most)} and {last}" if most else last


def _check_number(name: str, classes: int) -> None:
    """Refuse a class that does not exist, and as many guesses as there are classes."""
    found = re.fullmatch(r"(recall|top)_(\d+)", name)
    if found is None or int(found[2]) < classes:
        return
    if found[1] == "top":
        raise RequestError(
            f'the metric "{name}" is 1 whatever is predicted, because there are {classes} '
            f"classes; use a number below {classes}."
        )
    raise RequestError(
        f'the metric "{name}" asks for class {found[2]}, but classes run from 0 to {classes - 1}.'
    )


def _of_family(name: str, times: tuple[float, ...]) -> Metric | None:
    """Make a metric with a parameter in its name; None if it is not of a known form."""
    if name == "integrated_brier":
        return _integrated_brier(times)
    family, _, given = name.partition("=")
    if found := re.fullmatch(r"(top|recall)_(\d+)", name):
        family, given = {"top": "top_k", "recall": "recall"}[found[1]], found[2]
    if family not in FAMILIES:
        return None
    if family in ("top_k", "recall") and not given:
        raise RequestError(
            f'the metric "{family}" needs a number, such as "{family.removesuffix("_k")}_2".'
        )
    numbers = _whole_numbers(name, given)
    if family == "next_token_accuracy":
        return _next_token(numbers)
    if len(numbers) > 1:
        raise RequestError(f'the metric "{name}" takes one number, got {len(numbers)}.')
    if family == "recall":
        return _recall(numbers[0])
    if numbers and numbers[0] < 1:
        raise RequestError(f'the metric "{name}" counts, so its number is 1 or more.')
    return _top(numbers[0]) if family == "top_k" else _ece(*numbers)


def _whole_numbers(name: str, given: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in given.split(",")) if given else ()
    except ValueError:
        raise RequestError(
            f'the metric "{name}" expects whole numbers after "=", got "{given}".'
        ) from None


def _top(k: int) -> Metric:
    about = f"share of examples whose class is among the {k} most likely"
    return _metric(f"top_{k}", partial(_classes.top, k), CLASSES, "probabilities", about=about)


def _recall(number: int) -> Metric:
    def compute(t: Array, p: Array, w: Array) -> Array:
        return _classes.recalls(t, p, w)[:, number]

    about, condition = f"share of class {number} that is recognized", f"examples of class {number}"
    return _metric(
        f"recall_{number}", compute, CLASSES, "classes", about=about, defined_if=condition
    )


def _ece(bins: int = _calibration.BINS) -> Metric:
    name = "ece" if bins == _calibration.BINS else f"ece={bins}"
    compute = partial(_calibration.ece, bins)
    about = f"mean distance of predicted and observed frequencies in {bins} bins"
    return _metric(name, compute, _BOTH, "probabilities", higher=False, about=about)


def _next_token(ignore: tuple[int, ...]) -> Metric:
    name = "next_token_accuracy" + (f"={','.join(map(str, ignore))}" if ignore else "")
    kinds: frozenset[TaskKind] = frozenset({"sequence"})
    about = "share of positions with a target whose most likely token is the right one"
    condition = "a position whose target is not ignored"
    compute = partial(_classes.token_accuracy, ignore)
    return _metric(name, compute, kinds, "classes", about=about, defined_if=condition)


def _integrated_brier(times: tuple[float, ...]) -> Metric:
    if not times:
        raise RequestError(
            "integrated_brier needs the ends of the time bins; use "
            '`motet.metrics.get("integrated_brier", times=...)`.'
        )
    return _metric(
        "integrated_brier",
        partial(_survival.integrated_brier, times),
        SURVIVAL,
        "curves",
        higher=False,
        about="Brier score of survival curves, integrated over the follow-up",
        defined_if="a follow-up longer than the first two time bins",
    )


def _examples() -> list[Metric]:
    """Make one member of each family, for lists."""
    brier = replace(_integrated_brier((0.0, 1.0)))
    return [_top(5), _ece(), replace(_recall(0), name="recall"), _next_token(()), brier]
