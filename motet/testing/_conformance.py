"""`check_method`: what every method promises, tried out in worlds of a few examples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from motet.data._federation import Federation
from motet.errors import CapabilityError, RequestError, nearest
from motet.method import AnyMethod
from motet.task import Task
from motet.testing import _agreement as agreement
from motet.testing import _declaration as declaration
from motet.testing import _messages as messages
from motet.testing import _persistence as persistence
from motet.testing import _purity as purity
from motet.testing import _serving as serving
from motet.testing import _structure as structure
from motet.testing._comparing import ConformanceError
from motet.testing._promises import Promise, presupposed_by
from motet.testing._worlds import WORLDS, World, linear

# What others presuppose comes first.
PROMISES: tuple[Promise, ...] = (
    *declaration.CHECKS,
    *structure.CHECKS,
    *purity.CHECKS,
    *messages.CHECKS,
    *serving.CHECKS,
    *persistence.CHECKS,
    *agreement.CHECKS,
    *agreement.STACKED,
)
NEED_STACKS = {purity.a_stack_of_clients_runs_through, *agreement.STACKED}
ABOUT_THE_CLASS = {*declaration.CHECKS, persistence.config_round_trip}  # whatever it computes


@dataclass(frozen=True)
class Check:
    """One promise, for one method, in one world. Call it: it raises where the promise is broken.

    Attributes:
        promise: The function that tries the promise.
        method: The method.
        world: Where it is tried.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> check = next(iter(motet.testing.checks(motet.FedAvg(), world.task, world.data)))
        >>> str(check)
        'is_a_frozen_dataclass[given]'
        >>> check()
    """

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
            found = str(reason) if isinstance(reason, ConformanceError) else _named(reason)
            raise ConformanceError(
                f"{self.method.name} fails {self}: {self.sentence} Found: {found}"
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

    A fault is reported once: a check that presupposes what is broken is not tried.

    Args:
        method: The method, with the hyperparameters to try.
        task: The network to try it with, where the tiny ones of `motet.testing` do not suit, say
            because the method names modules of its own. `data` must then be given too.
        data: A federation that fits `task`. Small, and with a client of one example.
        skip: Names of checks to leave out.

    Returns:
        The names of the checks that passed.

    Raises:
        ConformanceError: Names every failed check, what was expected and what was found.

    Example:
        >>> import motet
        >>> world = motet.testing.ragged()
        >>> method = motet.FedAvg()
        >>> every = {check.name for check in checks(method, world.task, world.data)}
        >>> others = every - {"is_a_frozen_dataclass"}  # your own tests skip nothing
        >>> check_method(method, world.task, world.data, skip=others)
        ('is_a_frozen_dataclass[given]',)
    """
    _check_names(skip)
    passed: list[str] = []
    failures: list[ConformanceError] = []
    broken: set[Promise] = set()  # failed, or not tried because something else has failed
    everything = list(checks(method, task, data))
    for check in everything:
        if check.name in skip or check.promise in broken:
            continue
        # Other worlds show what the first one cannot: where that has shown a fault, they repeat it.
        elsewhere = check.world is not everything[0].world and broken - ABOUT_THE_CLASS
        if elsewhere or broken.intersection(presupposed_by(check.promise)):
            broken.add(check.promise)
            continue
        try:
            check()
            passed.append(str(check))
        except ConformanceError as failure:
            failures.append(failure)
            broken.add(check.promise)
    if failures:
        raise ConformanceError(_report(failures, len(broken) - len(failures))) from failures[0]
    return tuple(passed)


def checks(
    method: AnyMethod, task: Task | None = None, data: Federation | None = None
) -> Iterator[Check]:
    """Yield the checks one by one.

    In a test: `@pytest.mark.parametrize("check", checks(method), ids=str)`.

    Args:
        method: As for `check_method`.
        task: As for `check_method`.
        data: As for `check_method`.

    Yields:
        A check: calling it raises if the method fails it.

    Raises:
        RequestError: Only one of `task` and `data` is given.

    Example:
        >>> import motet
        >>> next(iter(checks(motet.FedAvg()))).name
        'is_a_frozen_dataclass'
    """
    if (task is None) != (data is None):
        raise RequestError("give task= and data= together: the data must fit the network.")
    if task is not None and data is not None:
        worlds = [World("given", task, data)]
    else:
        worlds = _worlds_for(method)
    first, *others = worlds
    tried = [(promise, first) for promise in PROMISES]
    for world in others:
        again = structure.WITH_BUFFERS if world.task.buffers else ()
        tried += [(promise, world) for promise in (*again, *agreement.STACKED_IN_EVERY_WORLD)]
    for promise, world in tried:
        if method.vectorizable or promise not in NEED_STACKS:
            yield Check(promise, method, world)


def _worlds_for(method: AnyMethod) -> list[World]:
    """Make the tiny worlds whose network the method accepts; one layer is the last resort."""
    worlds = [make() for make in WORLDS.values()]
    return [world for world in worlds if _suits(method, world)] or [linear()]


def _suits(method: AnyMethod, world: World) -> bool:
    some = world.data.examples(world.data.clients[0], "train").x
    try:
        method.check(world.task.seeing(some), world.data.clients)
    except CapabilityError:
        return False
    except Exception:  # not about the network: the checks say what it is
        return True
    return True


def _check_names(skip: Collection[str]) -> None:
    known = [promise.__name__ for promise in PROMISES]
    for name in skip:
        if name not in known:
            raise RequestError(f'no check is called "{name}"; {nearest(name, known)}.')


def _report(failures: Sequence[ConformanceError], untried: int) -> str:
    lines = [str(failure) for failure in failures]
    if untried:
        checks_do = "check presupposes" if untried == 1 else "checks presuppose"
        lines.append(f"{untried} more {checks_do} what is broken, so not tried.")
    return "\n".join(lines)


def _named(reason: Exception) -> str:
    return f"{type(reason).__name__} was raised: {reason}"
