"""Objects that a config names by kind: optimizers, schedules, reductions, partitions, methods.

A table with a tag stands for each: `optimizer = {kind = "sgd", lr = 0.1}`. Members of a family are
the dataclasses of its home module, so that a new optimizer needs no entry here; one of your own is
written `kind = "package.module:Class"`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from types import ModuleType
from typing import Any, get_origin

from motet import optim
from motet._core import schedules
from motet._core.aggregation import low_rank, robust
from motet._core.aggregation import mean as reduce
from motet.data._partition import PARTITIONS, Partition
from motet.data._partition.embedding import Embedding, Trained
from motet.errors import RequestError
from motet.method import Method
from motet.methods import _catalog as catalog
from motet.privacy import _optimizer as private_optimizers
from motet.privacy import _uploads as uploads


@dataclass(frozen=True)
class Family:
    """A kind of object, and its members by the names that configs use.

    Attributes:
        what: What a member is called in a sentence.
        tag: The key that names the member.
        members: Name -> "package.module:Class", or the class itself.
    """

    what: str
    tag: str
    members: Mapping[str, Any]

    def named(self, name: str) -> type[Any]:
        """Find a member by name, or import one that is not ours."""
        found = self.members.get(name)
        if found is None:
            found = catalog.imported(name, what=self.what, known=self.members)
        if not is_dataclass(found):
            raise RequestError(f'"{name}" is not a {self.what}: expected a dataclass.')
        return found  # type: ignore[return-value]  # is_dataclass also accepts instances

    def name_of(self, member: type[Any]) -> str:
        """Say how a config names a class."""
        names = (name for name, known in self.members.items() if known is member)
        return next(names, f"{member.__module__}:{member.__qualname__}")


@dataclass(frozen=True)
class Methods(Family):
    """The family of methods: imported one by one, and named by themselves."""

    def named(self, name: str) -> type[Any]:
        return catalog.method_class(name)

    def name_of(self, member: type[Any]) -> str:
        own = getattr(member, "name", "")
        is_ours = own in self.members and catalog.method_class(own) is member
        return own if is_ours else f"{member.__module__}:{member.__qualname__}"


def family_of(hint: Any) -> Family | None:
    """Tell which family a field's type stands for."""
    kind = get_origin(hint) or hint
    if isinstance(kind, type) and issubclass(kind, Method):
        return Methods("method", "name", dict.fromkeys(catalog.method_names()))
    if kind is Partition:
        return Family("partition", "name", PARTITIONS)
    return _families().get(kind)


def family_of_value(value: Any) -> Family:
    """Return the family an object belongs to; other objects are named by their path."""
    for ancestor in (Method, Partition):
        if isinstance(value, ancestor):
            return family_of(ancestor) or _STRANGERS
    ours = (family for family in _families().values() if type(value) in family.members.values())
    return next(ours, _STRANGERS)


_STRANGERS = Family("object", "kind", {})


@cache
def _families() -> dict[Any, Family]:
    return {
        optim.Optimizer: Family(
            "optimizer", "kind", _dataclasses_of(optim) | _dataclasses_of(private_optimizers)
        ),
        Embedding: Family("embedding", "kind", {"trained": Trained}),
        schedules.Schedule: Family("schedule", "kind", _dataclasses_of(schedules)),
        reduce.Reduce: Family(
            "reduction",
            "kind",
            _dataclasses_of(reduce)
            | _dataclasses_of(robust)
            | _dataclasses_of(low_rank)
            | _dataclasses_of(uploads),
        ),
    }


def _dataclasses_of(module: ModuleType) -> dict[str, type[Any]]:
    """Name the dataclasses that a module defines: `CosineDecay` is "cosine-decay"."""
    own = [v for v in vars(module).values() if getattr(v, "__module__", "") == module.__name__]
    return {
        re.sub(r"(?<!^)(?=[A-Z])", "-", v.__name__).lower(): v
        for v in own
        if isinstance(v, type) and is_dataclass(v)
    }
