"""Data sets by name: what each one is, where its loader lives, and how it becomes a federation.

The table holds strings, so that naming a data set costs no import; its module is imported when it
is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from motet.data.divide import divide
from motet.data.federation import Federation
from motet.data.partition import Natural, Partition
from motet.data.raw import Normalize, Raw
from motet.data.split import Split
from motet.errors import RequestError, nearest

__all__ = ["Dataset", "Normalize", "Raw", "dataset", "load", "names"]

_TABLE = {
    "digits": "motet.data.sets.digits:DIGITS",
    "cifar10": "motet.data.sets.cifar:CIFAR10",
    "cifar100": "motet.data.sets.cifar:CIFAR100",
    "mnist": "motet.data.sets.mnist:MNIST",
    "mnist-by-writer": "motet.data.sets.mnist_by_writer:MNIST_BY_WRITER",
    "fashion-mnist": "motet.data.sets.mnist:FASHION_MNIST",
    "shakespeare": "motet.data.sets.shakespeare:SHAKESPEARE",
    "har": "motet.data.sets.har:HAR",
    "heart-disease": "motet.data.sets.heart_disease:HEART_DISEASE",
}


@dataclass(frozen=True)
class Dataset:
    """A named data set.

    Attributes:
        name: As users write it.
        summary: One line for `motet data`.
        load: Reads the arrays.
        natural: Whether clients come with the data.
        default_partition: Makes the partition that is used when none is named; None for natural
            clients.
        where: Where the files come from, for the error when they are missing.
    """

    name: str
    summary: str
    load: Callable[[], Raw]
    natural: bool
    default_partition: Callable[..., Partition] | None
    where: str


def names() -> tuple[str, ...]:
    """List every registered data set."""
    return tuple(_TABLE)


def dataset(name: str) -> Dataset:
    """Import the data set called `name`."""
    if name not in _TABLE:
        raise RequestError(f'no data set is called "{name}"; {nearest(name, _TABLE)}')
    module, attribute = _TABLE[name].split(":")
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Dataset)
    return found


def load(
    name: str,
    partition: Partition | None = None,
    *,
    seed: int = 0,
    val: float = 0.2,
    test: float | Literal["official"] | None = None,
) -> Federation:
    """Load a data set by name and divide it among clients.

    Args:
        name: One of `motet.data.names()`.
        partition: Who gets which rows; None takes the data's natural clients, or the set's usual
            partition.
        seed: Names the division; the same seed gives the same one everywhere.
        val: Share of a client's rows for validation, where the data do not say which rows.
        test: Share of a client's rows for test, pooled from all the data; "official" keeps the
            test set that comes with the data, shared out in each client's own class mix. None:
            official where there is one, else 0.2.
    """
    found = dataset(name)
    raw = found.load()
    if partition is None:
        partition = Natural() if found.default_partition is None else found.default_partition()
    if test is None:
        test = "official" if raw.has_test else 0.2
    elif test == "official" and not raw.has_test:
        raise RequestError(
            f'"{name}" comes without a test set of its own; give test as a share, such as 0.2.'
        )
    return divide(
        raw, partition, Split(val, test), name=name, seed=seed, source={"from": "registry"}
    )
