"""`check_method`: what every method promises, tried out in worlds of a few examples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from motet.data.federation import Federation
from motet.errors import RequestError, nearest
from motet.method import AnyMethod
from motet.task import Task
from motet.testing import agreement, declaration, messages, persistence, purity, serving
from motet.testing.comparing import ConformanceError
from motet.testing.worlds import WORLDS, World

Promise = Callable[[AnyMethod, World], None]

PROMISES: tuple[Promise, ...] = (
    *declaration.CHECKS,
    *purity.CHECKS,
    *agreement.CHECKS,
    *messages.CHECKS,
    *persistence.CHECKS,
    *serving.CHECKS,
)


@dataclass(frozen=True)
class Check:
    """One promise, for one method, in one world. Call it: it raises where the promise is broken."""

    promise: Promise
    method: AnyMethod
    world: World

    @property
    def name(self) -> str:
        """The promise in one word."""
        return self.promise.__name__

    @property
    def sentence(self) -> str:
        """The promise in one sentence."""
        return (self.promise.__doc__ or "").strip()

    def __call__(self) -> None:
        try:
            self.promise(self.method, self.world)
        except Exception as reason:
            came = str(reason) if isinstance(reason, ConformanceError) else _named(reason)
            raise ConformanceError(
                f"{self.method.name} fails {self}: {self.sentence} But here: {came}"
            ) from reason

    def __str__(self) -> str:
        return f"{self.name}[{self.world.name}]"


def check_method(
    method: AnyMethod,
    task: Task | None = None,
    data: Federation | None = None,
    *,
    skip: Collection[str] = (),
) -> tuple[str, ...]:
    """Try out everything a method promises, and report all that is broken.

    Args:
        method: The method, with the hyperparameters to try.
        task: The network to try it with, where the tiny ones of `motet.testing` do not suit, say
            because the method names modules of its own. `data` must then be given too.
        data: A federation that fits `task`. Small, and with a client of one example.
        skip: Names of checks to leave out.

    Returns:
        The names of the checks that passed.

    Raises:
        ConformanceError: Names every broken promise, what was expected and what came.
    """
    _check_names(skip)
    passed: list[str] = []
    failures: list[ConformanceError] = []
    for check in checks(method, task, data):
        if check.name in skip:
            continue
        try:
            check()
            passed.append(str(check))
        except ConformanceError as failure:
            failures.append(failure)
    if failures:
        raise ConformanceError("\n".join(map(str, failures))) from failures[0]
    return tuple(passed)


def checks(
    method: AnyMethod, task: Task | None = None, data: Federation | None = None
) -> Iterator[Check]:
    """Yield the checks one by one.

    In a test: `@pytest.mark.parametrize("check", checks(method), ids=str)`.
    """
    if (task is None) != (data is None):
        raise RequestError("give task= and data= together: the data must fit the network.")
    worlds = [make() for make in WORLDS.values()]
    if task is not None and data is not None:
        worlds = [World("given", task, data)]
    for promise in (*PROMISES, *(agreement.STACKED if method.vectorizable else ())):
        yield Check(promise, method, worlds[0])
    for promise in agreement.STACKED_IN_EVERY_WORLD if method.vectorizable else ():
        for world in worlds:
            yield Check(promise, method, world)


def _check_names(skip: Collection[str]) -> None:
    every = (*PROMISES, *agreement.STACKED, *agreement.STACKED_IN_EVERY_WORLD)
    known = [promise.__name__ for promise in every]
    for name in skip:
        if name not in known:
            raise RequestError(f'no check is called "{name}"; {nearest(name, known)}.')


def _named(reason: Exception) -> str:
    return f"{type(reason).__name__} was raised: {reason}"
