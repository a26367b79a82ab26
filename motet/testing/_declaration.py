"""Checks of what a method declares: its fields, name and card."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from motet._training.identity import NoValueError, holds_tensors, identity_of
from motet.method import AnyMethod, Card
from motet.testing._comparing import require
from motet.testing._promises import presupposes
from motet.testing._worlds import World

SAID = ("title", "paper", "idea", "shared", "private", "down", "up", "new_client")


def is_a_frozen_dataclass(method: AnyMethod, _: World) -> None:
    """Hyperparameters are the keyword-only fields of a frozen dataclass, and hash with it."""
    kind: Any = type(method)
    line = "@dataclass(frozen=True, kw_only=True)"
    params = vars(kind).get("__dataclass_params__")
    require(
        params is not None and params.frozen,
        f"expected {kind.__name__} to be a frozen dataclass; write {line} above the class.",
    )
    positional = [f.name for f in dataclasses.fields(method) if f.init and not f.kw_only]
    require(
        not positional,
        f"expected keyword-only fields, but {positional} are positional; write {line}.",
    )
    silent = _without_annotation(kind)
    require(
        not silent,
        f"expected every hyperparameter to be an annotated field, but {silent} have no annotation "
        "and are the same for all instances; write `name: type = value`, or `name: ClassVar[type] "
        "= value` for a constant.",
    )
    hash(method)


@presupposes(is_a_frozen_dataclass)
def no_field_holds_a_tensor(method: AnyMethod, _: World) -> None:
    """Hyperparameters are numbers and names; tensors live in the states."""
    try:
        identity_of(method)
    except NoValueError as reason:
        require(
            not holds_tensors(reason.thing),
            f"expected hyperparameters without tensors, but {reason}; make it in `init_server` or "
            "`init_client`, and keep it in the state.",
        )


def has_a_name_and_a_card_of_its_own(method: AnyMethod, _: World) -> None:
    """Names, in lower case with hyphens, and cards, without blanks, are a method's own."""
    kind = type(method)
    for base in kind.__mro__[1:]:
        for what in ("name", "card"):
            theirs = getattr(base, what, None)
            require(
                theirs is None or getattr(kind, what) != theirs,
                f"expected {kind.__name__} to have a {what} of its own, but it has that of "
                f"{base.__name__}; write `{what}: ClassVar[...] = ...` in the class.",
            )
    require(
        re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", method.name) is not None,
        f'expected a name in lower case with hyphens, got "{method.name}".',
    )
    require(isinstance(method.card, Card), f"expected a `Card`, got {method.card!r}.")
    blank = [name for name in SAID if not str(getattr(method.card, name)).strip()]
    require(not blank, f"expected the card to be complete, but {blank} are empty.")


def _without_annotation(kind: type[AnyMethod]) -> list[str]:
    """Name class attributes that look like hyperparameters, and are none."""
    declared = vars(kind).get("__annotations__", {})
    fields = {field.name for field in dataclasses.fields(kind)}
    constants = {n for base in kind.__mro__[1:] for n in vars(base).get("__annotations__", {})}
    return [
        name
        for name, value in vars(kind).items()
        if not (name.startswith("_") or name.isupper() or name in declared)
        and not hasattr(type(value), "__get__")  # functions, properties and the like
        and name not in constants - fields
    ]


CHECKS = (is_a_frozen_dataclass, no_field_holds_a_tensor, has_a_name_and_a_card_of_its_own)
