"""The search for hyperparameters: on validation data alone, and as many tries for every method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, NamedTuple

from motet.config.overrides import overridden
from motet.config.values import read_fields, to_plain
from motet.errors import MotetError, RequestError, nearest
from motet.keys import Key
from motet.method import AnyMethod

Kind = Literal["random", "grid"]
Space = Mapping[str, Sequence[Any]]
RANDOM_TRIALS = 6
RATES = ("optimizer.lr", "server_optimizer.lr")
KNOBS = ("lam", "mu", "alpha", "gamma")  # the first that a method has is its main one
FACTORS = (1.0, 0.3, 3.0, 0.1, 10.0, 0.03)  # of what is given


class Trial(NamedTuple):
    """One point of a search."""

    tuned: Mapping[str, Any]  # dotted name -> value
    method: AnyMethod


@dataclass(frozen=True, kw_only=True)
class Search:
    """How hyperparameters are searched. The configuration that was given is always one try.

    Attributes:
        space: Values to try, by dotted name: "optimizer.lr" for every method that has it,
            "fedprox.mu" for one method or label. None: learning rates and the method's main knob
            (lam, mu, alpha, ...) around what is given.
        trials: Tries per method, the given configuration included; None: 6, or the whole grid.
        kind: "random" draws every value from its list, the same draws for every method; "grid"
            tries all combinations.
        rounds: Of each try; None: as many as the comparison has.
    """

    space: Space | None = None
    trials: int | None = None
    kind: Kind = "random"
    rounds: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("random", "grid"):
            raise RequestError(
                f'no search is called "{self.kind}"; {nearest(self.kind, ("random", "grid"))}.'
            )
        for name in ("trials", "rounds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RequestError(f"a search needs {name} of 1 or more; got {value}.")
        space: Mapping[str, Any] = self.space or {}  # whatever came
        for name, values in space.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise RequestError(
                    f'the search expects a list of values for "{name}"; got {values!r}.'
                )

    def trials_of(self, entries: Mapping[str, AnyMethod], key: Key) -> dict[str, list[Trial]]:
        """List what is tried for every entry, the given configuration first."""
        self._check(entries)
        return {label: self._trials(label, method, key) for label, method in entries.items()}

    def _check(self, entries: Mapping[str, AnyMethod]) -> None:
        for name in self.space or {}:
            if not any(own_name(name, label, m) for label, m in entries.items()):
                names = {name for method in entries.values() for name in tunable(method)}
                raise RequestError(
                    f'no method of the comparison has "{name}" to search; {nearest(name, names)}.'
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
        # A space with hardly more points than wanted would be drawn from for long.
        tuned = _grid(space) if points <= wanted else _draws(space, key)
        return list(itertools.islice(_different(given, tuned, label), wanted))

    def _checked(self, label: str, found: list[Trial]) -> list[Trial]:
        if self.trials is not None and len(found) > self.trials:
            raise RequestError(
                f"the grid of {label} has {len(found)} points with the given one, but trials="
                f'{self.trials}; raise trials, shorten the lists, or search with kind="random".'
            )
        return found

    def _space_of(self, label: str, method: AnyMethod) -> dict[str, tuple[Any, ...]]:
        if self.space is None:
            return default_space(method)
        named = ((own_name(name, label, method), v) for name, v in self.space.items())
        return {name: _distinct(values) for name, values in named if name}


def default_space(method: AnyMethod) -> dict[str, tuple[Any, ...]]:
    """Values around the given ones, of the learning rates and of the method's main knob."""
    knobs = [name for name in KNOBS if isinstance(value_at(method, name), float)][:1]
    around = {
        name: [_rounded(factor * given) for factor in FACTORS]
        for name in (*RATES, *knobs)
        if (given := value_at(method, name))
    }
    accepted = {n: tuple(v for v in vs if _accepts(method, n, v)) for n, vs in around.items()}
    return {name: values for name, values in accepted.items() if values}


def own_name(name: str, label: str, method: AnyMethod) -> str:
    """Return how a method itself calls a name of a space; nothing if the name is not for it."""
    owner, _, rest = name.partition(".")
    own = rest if owner in (label, method.name) else name
    return own if own in tunable(method) else ""


def tunable(method: AnyMethod) -> tuple[str, ...]:
    """List the dotted names of everything that may be changed in a method."""
    return tuple(_names(method))


def value_at(method: AnyMethod, name: str) -> Any:
    """Return what a dotted name stands for; None where a method has no such thing."""
    found: Any = method
    for step in name.split("."):
        found = getattr(found, step, None)
    return found


def changed(method: AnyMethod, tuned: Mapping[str, Any], label: str) -> AnyMethod:
    """Change a method by dotted names; a value that does not fit is refused with its key."""
    tables = overridden({}, [(name, to_plain(value)) for name, value in tuned.items()])
    return read_fields(type(method), tables, f"methods.{label}", base=method)


def _names(value: Any, above: str = "") -> Iterator[str]:
    for field in fields(value):
        below = getattr(value, field.name)
        yield f"{above}{field.name}"
        if is_dataclass(below):
            yield from _names(below, f"{above}{field.name}.")


def _different(given: Trial, points: Iterable[Mapping[str, Any]], label: str) -> Iterator[Trial]:
    """Yield the given configuration, then points that differ from all before."""
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
    """Draw points; a list is gone through in random order before any value of it comes again."""
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
