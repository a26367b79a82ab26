"""Users' own metrics: a decorator, plain functions, and "module:function"."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from motet._core.own_code import import_named
from motet.errors import RequestError, one_line, what_happened
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
    shown = name or _name(function)
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
        own=True,
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
            f'write your own metric as "{path}", "{path}=higher" or "{path}=lower"; got "{wanted}".'
        )
    try:
        found = import_named(path)
    except (Exception, SystemExit) as reason:  # the module is the user's: it may do anything
        raise RequestError(
            f'the metric "{wanted}" cannot be imported: {what_happened(reason)}. Check the '
            "spelling, and that the module is installed or in this directory."
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
    written = _name(function)
    if written.endswith(LOWER):
        return False
    if written.endswith(HIGHER):
        return True
    by_path = f'"{name}=higher" or "{name}=lower", or ' if is_path(name) else ""
    raise RequestError(
        f'it is not known whether higher values of the metric "{name}" are better; write {by_path}'
        "`motet.metrics.metric(function, higher_is_better=True)`, or the same as a decorator."
    )


def _name(function: Any) -> str:
    """Return a function's name; that of the function inside a `functools.partial`."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _needs(function: Any) -> Needs:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return "probabilities"
    if _name(function) in PROBABILITIES:
        return "probabilities"
    second = names[1] if len(names) > 1 else ""
    inner = function.func if isinstance(function, partial) else function
    theirs = str(getattr(inner, "__module__", "")).startswith("sklearn.")
    if second == "y_pred" or (theirs and second not in READS_PROBABILITIES):
        return "classes"
    return "probabilities"


def _repeated(function: Callable[..., Any], name: str, needs: Needs) -> Any:
    def compute(t: Array, p: Array, w: Array) -> Array:
        if not np.isfinite(p).all():  # functions differ in what they make of such predictions
            return np.full(len(w), np.nan)
        return np.array([_valued(function, name, t, _read(t, p, needs), row) for row in w])

    return compute


def _valued(function: Callable[..., Any], name: str, t: Array, p: Array, w: Array) -> float:
    """Call the function; on a resample, which no user has seen, a failure is an undefined value."""
    if bool((w == 1).all()):
        return _called(function, name, t, p)
    if not np.all(w == np.floor(w)):
        raise RequestError(f'the own metric "{name}" takes whole counts as weights.')
    chosen = np.repeat(np.arange(len(t)), w.astype(np.int64))
    try:
        return _called(function, name, t[chosen], p[chosen]) if len(chosen) else math.nan
    except RequestError:
        return math.nan


def _read(t: Array, p: Array, needs: Needs) -> Array:
    """Return what the function reads of predictions, in the form that scikit-learn's have."""
    if t.ndim == 1 and p.ndim == 2 and t.dtype.kind in "iub":
        if needs == "classes":
            return predicted_classes(p)
        return p[:, 1] if p.shape[1] == 2 else p  # of two classes, that of class 1
    if t.ndim == 2 and t.shape == p.shape and needs == "classes" and t.dtype.kind in "iub":
        return (p > 0.5).astype(t.dtype)
    return p.reshape(t.shape) if p.size == t.size else p


def _called(function: Callable[..., Any], name: str, t: Array, p: Array) -> float:
    contract = (
        "It is called with numpy arrays (targets, predictions) and returns a number, NaN where it "
        "is undefined."
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is undefined is said once, for all clients
            found = function(t.copy(), p.copy())  # it may write to them
    except (Exception, SystemExit) as reason:  # a function that ends the program fails, too
        raise RequestError(
            f'the metric "{name}" failed on {len(t)} examples: {type(reason).__name__}: '
            f"{one_line(reason)}. {contract}"
        ) from reason
    value = _number(found)
    if value is None:
        raise RequestError(
            f'the metric "{name}" returned {_shown(found)} on {len(t)} examples. {contract}'
        )
    return value


def _number(found: Any) -> float | None:
    """Return the one number that a function returned; None if it is something else."""
    if isinstance(found, str | bytes) or found is None:
        return None
    try:
        values = np.asarray(found.detach().cpu() if hasattr(found, "detach") else found)
    except Exception:
        return None
    if values.size != 1 or values.dtype.kind not in "biuf":
        return None
    value = float(values.reshape(()))
    return None if math.isinf(value) else value


def _shown(found: Any) -> str:
    """Describe what is not a number in a few words."""
    if isinstance(found, float | int | str | bytes | np.number) or found is None:
        return repr(found)[:60]
    shape = getattr(found, "shape", None)
    return f"{type(found).__name__} of shape {tuple(shape)}" if shape else type(found).__name__
