"""The format of private states: safetensors, sealed by a checksum over client, version and bytes.

A store keeps the seal beside the states (`disk.py`); a file of its own has it in the header
(`to_file`). All states of a run have the same names, shapes and types, so a header is made once;
reading compares it and then copies each tensor from its place straight into its row of a stack.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet._core import tree, wire
from motet.errors import StateError, StructureError, WireError, one_line

Bytes = NDArray[np.uint8]
FORMAT = 2  # of a file
ABOUT = "__metadata__"  # where safetensors has what is not a tensor
TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Place(NamedTuple):
    """Where a tensor lies, and what it is."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """How one state is written, tensor by tensor."""

    template: Any
    header: bytes
    places: tuple[Place, ...]

    @classmethod
    def of(cls, template: Any) -> Layout:
        """Lay out trees like this one."""
        named = dict(tree.flatten(template))
        # The widest types first, so that every tensor is aligned.
        order = sorted(named, key=lambda name: (-named[name].element_size(), name))
        places, end = [], 0
        for name in order:
            leaf, start = named[name], end
            end += leaf.numel() * leaf.element_size()
            places.append(Place(name, leaf.dtype, tuple(leaf.shape), start, end))
        header = _header(places)
        moved = (p._replace(start=p.start + len(header), stop=p.stop + len(header)) for p in places)
        return cls(template, header, tuple(moved))

    @property
    def size(self) -> int:
        """Bytes of one state."""
        return self.places[-1].stop if self.places else len(self.header)

    def write(self, stacked: Any, count: int) -> Bytes:
        """Write the rows of a stack, [count, size]."""
        named = dict(tree.flatten(stacked))
        tree.check_names({place.name: None for place in self.places}, named)
        written = np.empty((count, self.size), np.uint8)
        written[:, : len(self.header)] = np.frombuffer(self.header, np.uint8)
        for place in self.places:
            written[:, place.start : place.stop] = _as_bytes(named[place.name], place, count)
        return written

    def write_one(self, state: Any) -> bytes:
        """Write one state."""
        return self.write(tree.tree_map(lambda leaf: leaf.unsqueeze(0), state), 1).tobytes()

    def read_one(self, state: bytes) -> Any:
        """Read one state."""
        return tree.tree_map(lambda leaf: leaf[0], self.read([state], _nothing))

    def read(self, states: Sequence[bytes | None], fresh: Callable[[int], Any]) -> Any:
        """Read states into a stack; `fresh(row)` makes what is None."""
        leaves = {p.name: torch.empty(len(states), *p.shape, dtype=p.dtype) for p in self.places}
        targets = [(place, _rows(leaves[place.name], place)) for place in self.places]
        for row, state in enumerate(states):
            if state is not None and state.startswith(self.header):
                for place, target in targets:
                    target[row] = np.frombuffer(state, np.uint8)[place.start : place.stop]
            else:
                made = fresh(row) if state is None else wire.from_bytes(self.template, state)
                for name, leaf in tree.flatten(made):
                    leaves[name][row] = leaf
        return tree.unflatten(self.template, leaves)


class Sealed(NamedTuple):
    """A state as bytes, with what its checksum covers.

    Attributes:
        client: The client whose state it is.
        version: A number that tells it from the client's other states.
        state: The bytes that `Layout` writes and reads.
    """

    client: str
    version: int
    state: bytes


def checksum(client: str, version: int, state: Any) -> int:
    """Compute the checksum of a state, which also finds a state in the wrong place."""
    return zlib.crc32(state, zlib.crc32(b"%d %s" % (version, key_of(client))))


def key_of(client: str) -> bytes:
    """Encode a client's id, which may hold anything that a string can."""
    return client.encode("utf-8", "surrogatepass")


def to_file(sealed: Sealed, about: Mapping[str, str]) -> bytes:
    """Write a state as a safetensors file with its seal, and `about`, in the header."""
    table, tensors = _split(sealed.state)
    seal = {
        "format": str(FORMAT),
        "client": sealed.client,
        "version": str(sealed.version),
        "checksum": str(checksum(*sealed)),
    }
    return _packed({ABOUT: {**about, **seal}, **table}) + tensors


def from_file(written: bytes) -> tuple[Sealed, Mapping[str, str]]:
    """Read what `to_file` wrote.

    Raises:
        WireError: The file is damaged.
        StateError: It has another format.
    """
    try:
        table, tensors = _split(written)
        about: dict[str, str] = table.pop(ABOUT, {})
        if about.get("format") != str(FORMAT):
            raise StateError(
                f"it has format {about.get('format', 1)}, and this version reads {FORMAT}"
            )
        sealed = Sealed(about["client"], int(about["version"]), _packed(table) + tensors)
        is_whole = checksum(*sealed) == int(about["checksum"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise WireError(f"its header cannot be read: {one_line(reason)}") from reason
    if not is_whole:
        raise WireError("its checksum is wrong")
    return sealed, about


def _header(places: Sequence[Place]) -> bytes:
    table = {
        p.name: {"dtype": _type(p), "shape": p.shape, "data_offsets": (p.start, p.stop)}
        for p in places
    }
    return _packed(table)


def _packed(table: Mapping[str, Any]) -> bytes:
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _split(written: bytes) -> tuple[dict[str, Any], bytes]:
    """Split a safetensors file into the table of its header and its tensors."""
    end = 8 + int.from_bytes(written[:8], "little")
    table: dict[str, Any] = json.loads(written[8:end])
    return table, written[end:]


def _type(place: Place) -> str:
    if place.dtype not in TYPES:
        raise StructureError(
            f"{place.name} is {place.dtype}, which a store does not keep; it keeps "
            f"{', '.join(str(dtype).removeprefix('torch.') for dtype in TYPES)}."
        )
    return TYPES[place.dtype]


def _as_bytes(leaf: Tensor, place: Place, count: int) -> Bytes:
    if leaf.shape != (count, *place.shape) or leaf.dtype != place.dtype:
        raise StructureError(
            f"{place.name} should be {place.dtype} of shape {place.shape} for each of {count} "
            f"clients; got {leaf.dtype} of shape {tuple(leaf.shape)}. A client keeps trees of one "
            "kind from its first round to its last."
        )
    return _rows(leaf.detach().cpu().contiguous(), place)


def _rows(leaf: Tensor, place: Place) -> Bytes:
    """View a contiguous stack as bytes, a row per client."""
    flat: Bytes = leaf.view(len(leaf), prod(place.shape)).view(torch.uint8).numpy()
    return flat


def _nothing(row: int) -> Any:
    raise AssertionError(f"row {row} was found")
