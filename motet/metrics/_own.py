"""Users' own metrics: a decorator, plain functions, and "module:function"."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from motet._core.own_code import import_named
from motet.errors import RequestError, one_line
from motet.metrics._classes import predicted_classes
from motet.metrics._metric import KINDS, Array, Metric, Needs, TaskKind

# Functions of scikit-learn that read probabilities, though their parameter does not say so.
PROBABILITIES = ("log_loss", "d2_log_loss_score", "hinge_loss")
READS_PROBABILITIES = ("y_score", "y_prob", "y_proba", "probas_pred")
DIRECTIONS = {"higher": True, "lower": False}
LOWER, HIGHER = ("_loss", "_error"), ("_score",)  # scikit-learn's convention for names


def is_path(name: str) -> bool:
    """Tell whether a name is of the form "module:function", or with "=higher" or "=lower"."""
    module, colon, function = name.partition("=")[0].partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), function))


def metric(
    function: Callable[..., Any] | None = None,
    *,
    higher_is_better: bool | None = None,
    needs: Needs | None = None,
    kinds: Collection[TaskKind] = KINDS,
    name: str | None = None,
    low: float = -math.inf,
    high: float = math.inf,
) -> Any:
    """Make a metric of a function `(targets, predictions) -> number`, also as a decorator.

    NaN means that the metric is undefined on these examples: the site is left out and counted.

    Args:
        function: Called with numpy arrays. Weighted examples are passed as repeated ones.
        higher_is_better: Direction; None: by the name, "_score" is higher, "_loss" and "_error" are
            lower, as in scikit-learn.
        needs: "probabilities" or "classes" (the most likely one), for tasks with classes; None:
            classes if the second parameter is called `y_pred`, else probabilities; for functions
            of scikit-learn, what they read.
        kinds: Kinds of tasks for which it is defined.
        name: As shown; None: the function's name.
        low: Smallest possible value.
        high: Largest possible value.

    Returns:
        The metric; without a function, a decorator that makes it.

    Raises:
        RequestError: The direction is not known.

    Example:
        >>> import numpy as np
        >>> @metric(higher_is_better=False, needs="classes")
        ... def missed(targets, predicted):
        ...     return np.mean((targets == 1) & (predicted != 1))
        >>> missed.score([1, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
        0.3333333333333333
    """
    if function is None:
        return lambda made: metric(
            made,
            higher_is_better=higher_is_better,
            needs=needs,
            kinds=kinds,
            name=name,
            low=low,
            high=high,
        )
    shown = name or str(getattr(function, "__name__", type(function).__name__))
    read: Needs = needs or _needs(function)
    return Metric(
        name=shown,
        higher_is_better=_direction(function, shown, given=higher_is_better),
        kinds=frozenset(kinds),
        needs=read,
        compute=_repeated(function, shown, read),
        low=low,
        high=high,
        defined_if="what the function needs",
        about=(inspect.getdoc(function) or "").split("\n")[0],
    )


def imported(wanted: str | Callable[..., Any]) -> Metric:
    """Make a metric of a function, or of what "module:function" names."""
    if not isinstance(wanted, str):
        if not callable(wanted):
            raise RequestError(
                f"a metric is a name, a function or a Metric; got {type(wanted).__name__}."
            )
        made: Metric = metric(wanted)
        return made
    path, _, direction = wanted.partition("=")
    if direction not in ("", *DIRECTIONS):
        raise RequestError(
            f'an own metric is "{path}", "{path}=higher" or "{path}=lower"; got "{wanted}".'
        )
    try:
        found = import_named(path)
    except (ImportError, AttributeError, ValueError) as reason:
        raise RequestError(
            f'the metric "{wanted}" cannot be imported: {one_line(reason)}. Check the spelling, '
            "and that the module is installed or in this directory."
        ) from reason
    higher = DIRECTIONS.get(direction)
    if isinstance(found, Metric):
        own = found.higher_is_better if higher is None else higher
        return replace(found, name=path, higher_is_better=own)
    if not callable(found):
        raise RequestError(
            f'the metric "{wanted}" is a {type(found).__name__}; a function was expected.'
        )
    named: Metric = metric(found, name=path, higher_is_better=higher)
    return named


def _direction(function: Any, name: str, *, given: bool | None) -> bool:
    if given is not None:
        return given
    written = str(getattr(function, "__name__", name))
    if written.endswith(LOWER):
        return False
    if written.endswith(HIGHER):
        return True
    raise RequestError(
        f'it is not known whether higher values of the metric "{name}" are better; write '
        f'"{name}=higher" or "{name}=lower", or `@motet.metrics.metric(higher_is_better=True)` '
        "above the function."
    )


def _needs(function: Any) -> Needs:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return "probabilities"
    if getattr(function, "__name__", "") in PROBABILITIES:
        return "probabilities"
    second = names[1] if len(names) > 1 else ""
    theirs = str(getattr(function, "__module__", "")).startswith("sklearn.")
    if second == "y_pred" or (theirs and second not in READS_PROBABILITIES):
        return "classes"
    return "probabilities"


def _repeated(function: Callable[..., Any], name: str, needs: Needs) -> Any:
    def compute(t: Array, p: Array, w: Array) -> Array:
        return np.array([_called(function, name, t, _read(t, p, needs), row) for row in w])

    return compute


def _read(t: Array, p: Array, needs: Needs) -> Array:
    """Return what the function reads of predictions, in the form that scikit-learn's have."""
    if t.ndim == 1 and p.ndim == 2 and t.dtype.kind in "iub":
        if needs == "classes":
            return predicted_classes(p)
        return p[:, 1] if p.shape[1] == 2 else p  # of two classes, that of class 1
    if t.ndim == 2 and t.shape == p.shape and needs == "classes" and t.dtype.kind in "iub":
        return (p > 0.5).astype(t.dtype)
    return p.reshape(t.shape) if p.size == t.size else p


def _called(function: Callable[..., Any], name: str, t: Array, p: Array, w: Array) -> float:
    if not np.all(w == np.floor(w)):
        raise RequestError(f'the own metric "{name}" takes whole counts as weights.')
    chosen = np.repeat(np.arange(len(t)), w.astype(np.int64))
    if not len(chosen):
        return math.nan
    try:
        return float(function(t[chosen], p[chosen]))
    except (Exception, SystemExit) as reason:  # a function that ends the program fails, too
        raise RequestError(
            f'the metric "{name}" failed on {len(chosen)} examples: {type(reason).__name__}: '
            f"{one_line(reason)}. It is called with numpy arrays (targets, predictions) and "
            "returns a number, NaN where it is undefined."
        ) from reason
