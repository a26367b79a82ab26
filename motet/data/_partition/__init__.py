"""Partitions: recipes that divide a data set among clients."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from typing import Any

from motet.data._partition.base import Partition
from motet.data._partition.dirichlet import Dirichlet, TwoLevelDirichlet
from motet.data._partition.latent import Latent
from motet.data._partition.natural import Natural
from motet.data._partition.pathological import Pathological
from motet.data._partition.simple import IID, QuantitySkew
from motet.errors import RequestError, nearest

__all__ = [
    "IID",
    "PARTITIONS",
    "Dirichlet",
    "Latent",
    "Natural",
    "Partition",
    "Pathological",
    "QuantitySkew",
    "TwoLevelDirichlet",
    "partition_named",
    "recipe_of",
]

PARTITIONS: dict[str, type[Partition]] = {
    "iid": IID,
    "pathological": Pathological,
    "dirichlet": Dirichlet,
    "two-level-dirichlet": TwoLevelDirichlet,
    "latent": Latent,
    "quantity-skew": QuantitySkew,
    "natural": Natural,
}


def partition_named(name: str, **values: Any) -> Partition:
    """Make a partition from its command-line name and its fields.

    Args:
        name: iid, pathological, dirichlet, two-level-dirichlet, latent, quantity-skew or
            natural.
        **values: Fields of the partition.

    Returns:
        The partition.

    Raises:
        RequestError: There is no such partition or field.

    Example:
        >>> partition_named("pathological", clients=20, classes=2)
        Pathological(clients=20, classes=2, minimum=1)
    """
    if name not in PARTITIONS:
        raise RequestError(
            f'no partition is called "{name}"; {nearest(name, PARTITIONS)}.', option="name"
        )
    kind = PARTITIONS[name]
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # each is a dataclass
    for key in values:
        if key not in known:
            raise RequestError(f'partition "{name}" has no field "{key}"; {nearest(key, known)}')
    try:
        return kind(**values)
    except TypeError as error:
        needed = ", ".join(known)
        raise RequestError(
            f'partition "{name}" needs more fields ({error}); it has: {needed}'
        ) from None


def recipe_of(partition: Partition) -> dict[str, Any]:
    """Describe a partition by JSON values; a function is represented by its name."""
    names = {kind: name for name, kind in PARTITIONS.items()}
    anything: Any = partition  # a user's own partition need not be a dataclass
    own_fields = fields(anything) if is_dataclass(anything) else ()
    values = {field.name: getattr(partition, field.name) for field in own_fields}
    written = {key: _written(value) for key, value in values.items()}
    return {"name": names.get(type(partition), type(partition).__name__), **written}


def _written(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return getattr(value, "__qualname__", repr(value)) if callable(value) else value
