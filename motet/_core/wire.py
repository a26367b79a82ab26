"""Trees as named arrays, and as bytes: the only form in which they are sent or stored.

Structure does not travel, named tensors do. The receiver rebuilds a tree from a template of its
own, and refuses bytes that do not fit it to the name, the shape and the type. Nothing here can run
code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from motet._core import tree
from motet.errors import WireError

T = TypeVar("T")


def to_arrays(value: Any) -> dict[str, NDArray[Any]]:
    """Name every tensor of a tree by its path, as numpy arrays that share no memory with it.

    >>> to_arrays({"head": {"bias": torch.zeros(2)}})
    {'head/bias': array([0., 0.], dtype=float32)}
    """
    return {name: _as_array(name, leaf) for name, leaf in tree.flatten(value)}


def from_arrays(template: T, arrays: Mapping[str, NDArray[Any]]) -> T:
    """Rebuild a tree of the template's structure; the template's values are not used."""
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return from_tensors(template, tensors)


def to_bytes(value: Any) -> bytes:
    """Write a tree down in the safetensors format."""
    # Clones, because the format refuses names that share memory, and views have gaps.
    named = {name: leaf.detach().clone().contiguous() for name, leaf in tree.flatten(value)}
    written: bytes = safetensors.torch.save(named)
    return written


def from_bytes(template: T, written: bytes) -> T:
    """Read a tree of the template's structure; the template's values are not used."""
    return from_tensors(template, read_tensors(written))


def read_tensors(written: bytes) -> dict[str, Tensor]:
    """Read named tensors, without a template to check them against."""
    try:
        named: dict[str, Tensor] = safetensors.torch.load(written)
    except (SafetensorError, KeyError, ValueError) as reason:
        raise WireError(
            f"{len(written)} bytes are not a complete safetensors file ({reason}); send or "
            "save them again."
        ) from reason
    return named


def from_tensors(template: T, named: Mapping[str, Tensor]) -> T:
    """Rebuild a tree of the template's structure from tensors named by path."""
    expected = dict(tree.flatten(template))
    _check_names(expected, named)
    for name, like in expected.items():
        _check_leaf(name, like, named[name])
    return tree.unflatten(template, named)


def _as_array(name: str, leaf: Tensor) -> NDArray[Any]:
    try:
        return np.array(leaf.detach().cpu().numpy())
    except TypeError as reason:
        raise WireError(
            f"{name} is {leaf.dtype}, which numpy does not know; use `to_bytes`, or float32."
        ) from reason


def _check_names(expected: Mapping[str, Any], got: Mapping[str, Any]) -> None:
    missing, extra = sorted(expected.keys() - got.keys()), sorted(got.keys() - expected.keys())
    if missing or extra:
        raise WireError(
            f"the names differ from the {len(expected)} expected: missing {missing[:4]}, "
            f"unexpected {extra[:4]}. Do both sides use the same method, model and selector?"
        )


def _check_leaf(name: str, like: Tensor, got: Tensor) -> None:
    if got.shape != like.shape or got.dtype != like.dtype:
        raise WireError(
            f"{name} should be {like.dtype} of shape {tuple(like.shape)}; got {got.dtype} of "
            f"shape {tuple(got.shape)}. Do both sides use the same model?"
        )
