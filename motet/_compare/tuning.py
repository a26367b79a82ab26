"""The space of a hyperparameter search: which values are tried, equally many for every method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple

from motet._core.keys import Key
from motet.config._overrides import overridden
from motet.config._values import read_fields, to_plain
from motet.errors import MotetError, RequestError, nearest
from motet.method import AnyMethod

Kind = Literal["random", "grid"]
Space = Mapping[str, Sequence[Any]]
RANDOM_TRIALS = 6
RATES = ("optimizer.lr", "server_optimizer.lr")
KNOBS = ("lam", "mu", "alpha", "gamma")  # the first that a method has is its main knob
FACTORS = (1.0, 0.3, 3.0, 0.1, 10.0, 0.03)  # times the given value


class Trial(NamedTuple):
    """One point of a search: values, and the method with these values."""

    tuned: Mapping[str, Any]  # dotted name -> value
    method: AnyMethod


@dataclass(frozen=True, kw_only=True)
class Search:
    """A hyperparameter search. The given configuration is always the first trial.

    Attributes:
        space: Values to try, by dotted name: "optimizer.lr" for every method that has it,
            "fedprox.mu" for one method or label. None: learning rates and the method's main knob
            (lam, mu, alpha, ...) around the given values.
        trials: Trials per method, including the given configuration; None: 6, or the whole grid.
        kind: "random" draws every value from its list, the same draws for every method; "grid"
            tries all combinations.
        rounds: Rounds of each trial; None: as many as in the comparison.

    Example:
        >>> Search(trials=4, space={"optimizer.lr": [0.05, 0.1]}).trials
        4
    """

    space: Space | None = None
    trials: int | None = None
    kind: Kind = "random"
    rounds: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("random", "grid"):
            raise RequestError(
                f'unknown kind of search "{self.kind}"; {nearest(self.kind, ("random", "grid"))}.'
            )
        for name in ("trials", "rounds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"Search({name}=) must be 1 or more; got {value}.", option=name)
        space: Mapping[str, Any] = self.space or {}  # not checked for types yet
        for name, values in space.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise RequestError(
                    f'the search expects a list of values for "{name}"; got {values!r}.'
                )

    def trials_of(self, entries: Mapping[str, AnyMethod], key: Key) -> dict[str, list[Trial]]:
        """Return the trials of every method, the given configuration first.

        Args:
            entries: Methods by label.
            key: Source of the randomness.
        """
        self._check(entries)
        return {label: self._trials(label, method, key) for label, method in entries.items()}

    def _check(self, entries: Mapping[str, AnyMethod]) -> None:
        for name in self.space or {}:
            if not any(own_name(name, label, m) for label, m in entries.items()):
                names = {name for method in entries.values() for name in tunable(method)}
                raise RequestError(
                    f'no compared method has "{name}" to search; {nearest(name, names)}.'
                )

    def _trials(self, label: str, method: AnyMethod, key: Key) -> list[Trial]:
        space = self._space_of(label, method)
        given = Trial({name: value_at(method, name) for name in space}, method)
        if not space:
            return [given]
        wanted = self.trials or RANDOM_TRIALS
        if self.kind == "grid":
            return self._checked(label, list(_different(given, _grid(space), label)))
        points = math.prod(len(values) for values in space.values())
        # Drawing distinct points from a space this small would take long.
        tuned = _grid(space) if points <= wanted else _draws(space, key)
        return list(itertools.islice(_different(given, tuned, label), wanted))

    def _checked(self, label: str, found: list[Trial]) -> list[Trial]:
        if self.trials is not None and len(found) > self.trials:
            raise RequestError(
                f"the grid of {label} has {len(found)} points including the given one, but trials="
                f'{self.trials}; raise trials, shorten the lists, or use kind="random".'
            )
        return found

    def _space_of(self, label: str, method: AnyMethod) -> dict[str, tuple[Any, ...]]:
        if self.space is None:
            return default_space(method)
        named = ((own_name(name, label, method), v) for name, v in self.space.items())
        return {name: _distinct(values) for name, values in named if name}


def default_space(method: AnyMethod) -> dict[str, tuple[Any, ...]]:
    """Return values around the given ones for the learning rates and the method's main knob."""
    knobs = [name for name in KNOBS if isinstance(value_at(method, name), float)][:1]
    around = {
        name: [_rounded(factor * given) for factor in FACTORS]
        for name in (*RATES, *knobs)
        if (given := value_at(method, name))
    }
    accepted = {n: tuple(v for v in vs if _accepts(method, n, v)) for n, vs in around.items()}
    return {name: values for name, values in accepted.items() if values}


def own_name(name: str, label: str, method: AnyMethod) -> str:
    """Return the method's own name for a name of the space; empty if it does not apply."""
    owner, _, rest = name.partition(".")
    own = rest if owner in (label, method.name) else name
    return own if own in tunable(method) else ""


def tunable(method: AnyMethod) -> tuple[str, ...]:
    """List the dotted names of all values of a method that can be changed."""
    return tuple(_names(method))


def value_at(method: AnyMethod, name: str) -> Any:
    """Return the value at a dotted name; None if the method does not have it."""
    found: Any = method
    for step in name.split("."):
        found = getattr(found, step, None)
    return found


def changed(method: AnyMethod, tuned: Mapping[str, Any], label: str) -> AnyMethod:
    """Return a method with some values changed; an invalid value raises with its key."""
    tables = overridden({}, [(name, to_plain(value)) for name, value in tuned.items()])
    return read_fields(type(method), tables, f"methods.{label}", base=method)


def _names(value: Any, above: str = "") -> Iterator[str]:
    for field in fields(value):
        below = getattr(value, field.name)
        yield f"{above}{field.name}"
        if is_dataclass(below):
            yield from _names(below, f"{above}{field.name}.")


def _different(given: Trial, points: Iterable[Mapping[str, Any]], label: str) -> Iterator[Trial]:
    """Yield the given configuration, then every point that differs from all earlier ones."""
    seen = [given.method]
    yield given
    for tuned in points:
        method = changed(given.method, tuned, label)
        if method not in seen:
            seen.append(method)
            yield Trial(tuned, method)


def _grid(space: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for point in itertools.product(*space.values()):
        yield dict(zip(space, point, strict=True))


def _draws(space: Mapping[str, Sequence[Any]], key: Key) -> Iterator[dict[str, Any]]:
    """Draw points at random; every value of a list is used once before any is repeated."""
    orders = {name: _order(len(values), key.fold(name)) for name, values in space.items()}
    while True:
        yield {name: space[name][next(order)] for name, order in orders.items()}


def _order(count: int, key: Key) -> Iterator[int]:
    for lap in itertools.count():
        yield from key.fold(lap).numpy().permutation(count).tolist()


def _distinct(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(v for number, v in enumerate(values) if v not in values[:number])


def _accepts(method: AnyMethod, name: str, value: Any) -> bool:
    try:
        changed(method, {name: value}, method.name)
    except MotetError:
        return False
    return True


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
