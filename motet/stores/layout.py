"""States as bytes: every state of a run has the same names, shapes and types, so one header fits
all.

A state is written as a safetensors file. The header is made once; reading compares it and then
copies each tensor from its place straight into its row of a stack.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motet import tree, wire
from motet.errors import StructureError

Bytes = NDArray[np.uint8]
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


def _header(places: Sequence[Place]) -> bytes:
    table = {
        p.name: {"dtype": _type(p), "shape": p.shape, "data_offsets": (p.start, p.stop)}
        for p in places
    }
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


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
            f"clients; {leaf.dtype} of shape {tuple(leaf.shape)} came. A client keeps trees of one "
            "kind from its first round to its last."
        )
    return _rows(leaf.detach().cpu().contiguous(), place)


def _rows(leaf: Tensor, place: Place) -> Bytes:
    """View a contiguous stack as bytes, a row per client."""
    flat: Bytes = leaf.view(len(leaf), prod(place.shape)).view(torch.uint8).numpy()
    return flat
