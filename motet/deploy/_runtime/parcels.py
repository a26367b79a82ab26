"""Messages: named arrays and a short header, refused on arrival if they do not fit.

No structure travels and nothing here can run code: the receiver rebuilds a tree from a template of
its own.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from motet._core import tree, wire
from motet._core.visible_text import excerpt
from motet.errors import NOT_FINITE, WireError

T = TypeVar("T")
Scalar = bool | int | float | str
Arrays = Mapping[str, NDArray[Any]]
S = TypeVar("S", bool, int, float, str)
NOTHING: Arrays = MappingProxyType({})


class Parcel(NamedTuple):
    """One message, either way.

    Attributes:
        header: A few values by name.
        arrays: Tensors by path.
        request: Of a request, its id: the same for the same contents. It is not sent.
    """

    header: Mapping[str, Scalar]
    arrays: Arrays = NOTHING
    request: str = ""


def digest(arrays: Arrays) -> str:
    """Return a hash of named arrays."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(repr((name, array.dtype.str, array.shape)).encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def request_id(action: str, header: Mapping[str, Scalar], arrays: str) -> str:
    """Identify a request: a reply to an equal request, sent earlier, is as good."""
    written = json.dumps([action, sorted(header.items()), arrays])
    return hashlib.sha256(written.encode()).hexdigest()


def unpack(template: T, arrays: Arrays) -> T:
    """Rebuild a tree like the template, or refuse: size, names, shapes, types, NaN, infinity."""
    _check_size(template, arrays)
    try:
        value = wire.from_arrays(template, arrays)
    except WireError:
        raise
    except (TypeError, ValueError) as reason:  # a type or byte order that torch does not know
        raise WireError(f"got arrays that are not tensors: {reason}.") from reason
    check_finite(value)
    return value


def unpack_first(templates: Iterable[T], arrays: Arrays) -> T:
    """Rebuild the tree like the first template that has the names of the arrays."""
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
    except Exception as reason:  # numpy's parser has more ways to fail than it documents
        raise WireError(f"{name} is not an array of numbers: {reason}.") from reason


def scalar(header: Mapping[str, Scalar], name: str, kind: type[S]) -> S:
    """Read an entry of a header, or refuse it."""
    found = header.get(name)
    if kind is float and type(found) is int and abs(found) < 2**64:
        found = float(found)
    if type(found) is not kind:  # not isinstance: True is not a number
        shown = excerpt(repr(found), most=60)
        raise WireError(f'the header needs "{name}" as {kind.__name__}; got {shown}.')
    return found


def _check_size(template: Any, arrays: Arrays) -> None:
    expected, found = tree.count_bytes(template), sum(array.nbytes for array in arrays.values())
    if found > expected:
        raise WireError(f"expected at most {expected} bytes; got {found}.")
    names = sum(1 for _ in tree.flatten(template))
    if len(arrays) > names:
        raise WireError(
            f"expected {names} arrays; got {len(arrays)}, of which "
            f"{sorted(arrays.keys() - dict(tree.flatten(template)).keys())[:4]} are unexpected."
        )


def check_finite(value: Any) -> None:
    """Refuse a tree with NaN or infinity."""
    for name, leaf in tree.flatten(value):
        if not tree.is_finite(leaf):
            raise WireError(f"{tree.readable(name)} {NOT_FINITE}.")
