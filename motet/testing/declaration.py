"""What a method says about itself."""

from __future__ import annotations

import dataclasses
import re

from motet.method import AnyMethod
from motet.testing.comparing import require
from motet.testing.worlds import World


def hyperparameters_are_frozen_keywords(method: AnyMethod, _: World) -> None:
    """Hyperparameters are the keyword-only fields of a frozen dataclass, and hash with it."""
    params = getattr(type(method), "__dataclass_params__", None)
    require(
        params is not None and params.frozen,
        f"expected {type(method).__name__} to be a frozen dataclass.",
    )
    hash(method)
    positional = [f.name for f in dataclasses.fields(method) if f.init and not f.kw_only]
    require(not positional, f"expected keyword-only fields, but {positional} are positional.")


def name_and_card_are_complete(method: AnyMethod, _: World) -> None:
    """Names are lower case with hyphens, and cards say what is shared and what is private."""
    require(
        re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", method.name) is not None,
        f'expected a name in lower case with hyphens, but "{method.name}" came.',
    )
    said = dataclasses.asdict(method.card)
    silent = [
        k for k in ("title", "idea", "shared", "private", "down", "up", "new_client") if not said[k]
    ]
    require(not silent, f"expected the card to be complete, but {silent} are empty.")


CHECKS = (hyperparameters_are_frozen_keywords, name_and_card_are_complete)
