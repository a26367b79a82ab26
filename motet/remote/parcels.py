"""What crosses the network: named arrays and a short header, refused on arrival if they do not fit.

No structure travels and nothing here can run code: the receiver rebuilds a tree from a template of
its own.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from motet import tree, wire
from motet.data.chain import UNREADABLE
from motet.errors import WireError

T = TypeVar("T")
Scalar = bool | int | float | str
Arrays = Mapping[str, NDArray[Any]]
S = TypeVar("S", bool, int, float, str)
NOTHING: Arrays = MappingProxyType({})


class Parcel(NamedTuple):
    """One message, either way."""

    header: Mapping[str, Scalar]
    arrays: Arrays = NOTHING


def unpack(template: T, arrays: Arrays) -> T:
    """Rebuild a tree like the template, or refuse: size, names, shapes, types, NaN, infinity."""
    _check_size(template, arrays)
    try:
        value = wire.from_arrays(template, arrays)
    except WireError:
        raise
    except (TypeError, ValueError) as reason:  # a type or byte order that torch does not know
        raise WireError(f"arrays came that are no tensors: {reason}.") from reason
    _check_finite(value)
    return value


def unpack_first(templates: Iterable[T], arrays: Arrays) -> T:
    """Rebuild the tree like the first template that has the names which came."""
    last: T | None = None
    for last in templates:
        if {name for name, _ in tree.flatten(last)} == arrays.keys():
            break
    assert last is not None, "a message has at least one form"
    return unpack(last, arrays)


def read_npy(name: str, written: bytes) -> NDArray[Any]:
    """Read an array in numpy's format where it lies; its header is not believed about its size."""
    file = io.BytesIO(written)
    try:
        np.lib.format.read_magic(file)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        flat = np.frombuffer(written, dtype, offset=file.tell())
        return flat.reshape(shape, order="F" if fortran else "C")
    except UNREADABLE as reason:
        raise WireError(f"{name} is no array of numbers: {reason}.") from reason


def scalar(header: Mapping[str, Scalar], name: str, kind: type[S]) -> S:
    """Read an entry of a header, or refuse it."""
    came = header.get(name)
    if kind is float and type(came) is int:
        came = float(came)
    if type(came) is not kind:  # not isinstance: True is no number
        raise WireError(f'the header needs "{name}" as {kind.__name__}; {came!r} came.')
    return came


def _check_size(template: Any, arrays: Arrays) -> None:
    expected, came = tree.count_bytes(template), sum(array.nbytes for array in arrays.values())
    if came > expected:
        raise WireError(f"{came} bytes came where {expected} were expected.")


def _check_finite(value: Any) -> None:
    for name, leaf in tree.flatten(value):
        if not tree.is_finite(leaf):
            raise WireError(f"{tree.readable(name)} holds a NaN or an infinity.")
