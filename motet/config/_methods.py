"""A method as a table of its hyperparameters, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from motet.config._values import read_fields, to_plain
from motet.errors import RequestError, under
from motet.method import AnyMethod
from motet.methods import _catalog as catalog


def method_to_dict(method: AnyMethod) -> dict[str, Any]:
    """Write every hyperparameter down, as values for TOML and JSON, with the method's name first.

    Args:
        method: A method.

    Returns:
        Its name and hyperparameters.

    Example:
        >>> from motet.methods._fedper import FedPer
        >>> method_to_dict(FedPer(epochs=2))["optimizer"]["lr"]
        0.1
    """
    written: dict[str, Any] = to_plain(method, "method")
    return written


def method_from_dict(
    table: Mapping[str, Any],
    *,
    kind: type[AnyMethod] | None = None,
    where: str = "method",
    base: AnyMethod | None = None,
) -> AnyMethod:
    """Make the method that a table describes; what it leaves out has its default.

    Args:
        table: Hyperparameters by name, and `name`. A learning rate beside them (`lr = 0.05`) is the
            optimizer's.
        kind: The class, where the name does not say it.
        where: What to call the table in an error.
        base: Where values that the table leaves out come from, instead of the defaults.

    Returns:
        The method.

    Raises:
        RequestError: The method, a hyperparameter or a value does not exist or fit.

    Example:
        >>> method_from_dict({"name": "fedper", "lr": 0.05, "personal": ["head"]}).optimizer.lr
        0.05
    """
    values = dict(table)
    name = values.pop("name", None)
    if kind is None:
        with under(where):
            kind = _class_named(name, where)
    return read_fields(kind, _with_rate_inside(kind, values), where, base)


def _class_named(name: Any, where: str) -> type[AnyMethod]:
    if not isinstance(name, str):
        known = ", ".join(catalog.method_names())
        raise RequestError(
            f'no method is named; say --method fedper, or name = "fedper" in [{where}]. '
            f"Known: {known}."
        )
    return catalog.method_class(name)


def _with_rate_inside(kind: type[AnyMethod], values: dict[str, Any]) -> dict[str, Any]:
    """Move a plain `lr` to the optimizer that it belongs to."""
    if "lr" not in values or "lr" in {field.name for field in fields(kind)}:
        return values
    rate, optimizer = values.pop("lr"), values.get("optimizer", {})
    if isinstance(optimizer, str):
        optimizer = {"kind": optimizer}
    if not isinstance(optimizer, Mapping):
        return values  # wrong anyway, and refused where its type is checked
    return values | {"optimizer": {**optimizer, "lr": rate}}
