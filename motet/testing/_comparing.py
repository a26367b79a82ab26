"""Assertions about two trees of tensors, with a sentence where they fail."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from motet._core import tree


class ConformanceError(AssertionError):
    """A method breaks a promise that every method makes.

    Example:
        >>> import motet
        >>> class Nameless(motet.FedAvg):
        ...     pass
        >>> motet.testing.check_method(Nameless())
        Traceback (most recent call last):
            ...
        motet.testing._comparing.ConformanceError: fedavg fails is_a_frozen_dataclass[ragged]: ...
    """


def require(holds: bool, sentence: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Raise with the sentence unless the condition holds."""
    if not holds:
        raise ConformanceError(sentence)


def require_same(expected: Any, got: Any, what: str) -> None:
    """Require two trees to be equal to the last bit."""
    for path, a, b in _pairs(expected, got, what):
        if not torch.equal(a, b) and _gap(a, b) > 0:  # NaN equals NaN here; others look for it
            raise ConformanceError(
                f"expected {what} to be the same to the last bit, but {path} differs by "
                f"{_gap(a, b):.3g}."
            )


def require_close(expected: Any, got: Any, what: str, tolerance: float) -> None:
    """Require two trees to agree, relative to 1 or to the larger value."""
    for path, a, b in _pairs(expected, got, what):
        gap = _gap(a, b)
        scale = 1 + float(a.double().abs().max()) if a.numel() else 1.0
        require(
            gap <= tolerance * scale,
            f"expected {what} to agree to {tolerance:g}, but {path} differs by {gap:.3g}.",
        )


def require_finite(value: Any, what: str) -> None:
    """Require a tree without NaN and infinity."""
    for path, leaf in tree.flatten(value):
        bad = leaf[~leaf.isfinite()]
        if bad.numel():
            raise ConformanceError(
                f"expected {what} to be finite, but {path} holds {bad.flatten()[0].item()}."
            )


def require_apart(a: Any, b: Any, what: str) -> None:
    """Require two trees to share no memory."""
    taken = {_storage(leaf) for leaf in tree.leaves(a) if leaf.numel()}
    for path, leaf in tree.flatten(b):
        require(
            leaf.numel() == 0 or _storage(leaf) not in taken,
            f"expected {what} to share no memory, but {path} lies in both; return a clone.",
        )


def require_alike(expected: Any, got: Any, what: str) -> None:
    """Require two trees of the same names, shapes and types."""
    for _ in _pairs(expected, got, what):
        pass


def _pairs(expected: Any, got: Any, what: str) -> list[tuple[str, Tensor, Tensor]]:
    theirs, ours = dict(tree.flatten(expected)), dict(tree.flatten(got))
    missing, extra = sorted(theirs.keys() - ours.keys()), sorted(ours.keys() - theirs.keys())
    require(
        not missing and not extra,
        f"expected {what} to have the same names, but {missing[:3]} are missing and "
        f"{extra[:3]} are new.",
    )
    for path, like in theirs.items():
        require(
            like.shape == ours[path].shape and like.dtype == ours[path].dtype,
            f"expected {path} of {what} to stay {like.dtype} of shape {tuple(like.shape)}; "
            f"got {ours[path].dtype} of shape {tuple(ours[path].shape)}.",
        )
    return [(tree.readable(path), theirs[path], ours[path]) for path in theirs]


def _gap(a: Tensor, b: Tensor) -> float:
    """Return the largest difference; infinity where one is NaN and the other is not."""
    if not a.numel():
        return 0.0
    gap = (a.double() - b.double()).abs()
    both_nan = a.double().isnan() & b.double().isnan()
    return float(gap.masked_fill(both_nan, 0).nan_to_num(nan=torch.inf).max())


def _storage(leaf: Tensor) -> int:
    return leaf.untyped_storage().data_ptr()
