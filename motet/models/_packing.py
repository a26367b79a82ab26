"""Texts of a batch, one behind the other, so that no layer computes anything for padding."""

from __future__ import annotations

import heapq
from itertools import accumulate, chain
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from motet._core.transforms import is_wrapped

ROW = 128  # tokens of a packed row at most, unless a text is longer
WIDTHS = (32, 48, 64, 96, 128)  # of rows, tried for each batch
EVEN = 512  # tokens of a row in which attention, which grows with it, costs as much as the rest
WORTH = 0.9  # share of the places that must be left, or there is too little padding to leave out


class Packed(NamedTuple):
    """Several texts per row."""

    tokens: Tensor  # [rows, width]
    positions: Tensor  # [rows, width] of a token in its own text
    texts: Tensor  # [rows, width] which text a token belongs to; -1: none
    places: Tensor  # [texts, length] where each token went, in the flattened rows

    def unpacked(self, hidden: Tensor) -> Tensor:
        """Give every token of a text its state; padding gets one that means nothing."""
        found = hidden.flatten(0, 1).index_select(0, self.places.flatten())
        return found.view(*self.places.shape, hidden.shape[-1])

    def mask(self, kind: torch.dtype, *, causal: bool) -> Tensor:
        """Say who may look at whom, as numbers to add to attention: texts see themselves only."""
        seen = self.texts[:, :, None] == self.texts[:, None, :]
        if causal:
            seen = seen.tril()
        return ((~seen).to(kind) * torch.finfo(kind).min)[:, None]


def pack(tokens: Tensor, real: Tensor) -> Packed:
    """Pack texts [texts, length], each with at least one real token, also in a stack of clients."""
    return Packed(*cast("tuple[Tensor, ...]", _Pack.apply(tokens, real)))  # type: ignore[no-untyped-call]


class _Pack(torch.autograd.Function):
    """A function of values, which are unknown under `vmap`, and known in its rule for it."""

    @staticmethod
    def forward(tokens: Tensor, real: Tensor) -> tuple[Tensor, ...]:
        return tuple(leaf[0] for leaf in _of_clients(tokens[None], real[None]))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004 - torch's names
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], tokens: Tensor, real: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        def stacked(leaf: Tensor, dim: int | None) -> Tensor:
            return (
                leaf.expand(info.batch_size, *leaf.shape) if dim is None else leaf.movedim(dim, 0)
            )

        packed = _of_clients(stacked(tokens, in_dims[0]), stacked(real, in_dims[1]))
        return tuple(packed), (0,) * len(packed)


def _of_clients(tokens: Tensor, real: Tensor) -> Packed:
    """Pack the texts of some clients [clients, texts, length] into rows of one width."""
    if is_wrapped(real):  # by another transform
        return _unchanged(tokens, real)
    counts = real.sum(2).tolist()
    starts, rows, width = _rows(counts)
    if rows * width > WORTH * real[0].numel():
        return _unchanged(tokens, real)
    client, text, column = real.nonzero(as_tuple=True)
    before = list(accumulate(chain.from_iterable(counts), initial=0))[:-1]
    # A token's place less its number among all tokens, which are in the order of their texts.
    shift = real.new_tensor([row * width + first for row, first in starts]) - real.new_tensor(
        before
    )
    number = torch.arange(len(text), device=real.device)
    place = shift[client * real.shape[1] + text] + number

    def laid_out(values: Tensor, filling: int) -> Tensor:
        flat = values.new_full((len(real), rows * width), filling)
        flat[client, place] = values
        return flat.view(len(real), rows, width)

    places = torch.zeros_like(real)
    places[client, text, column] = place
    found = tokens[client, text, column]
    return Packed(laid_out(found, 0), laid_out(column, 0), laid_out(text, -1), places)


def _unchanged(tokens: Tensor, real: Tensor) -> Packed:
    """Leave every text in a row of its own."""
    texts, length = real.shape[-2:]
    number = torch.arange(texts * length, device=real.device).view(texts, length)
    own = torch.where(real > 0, number // length, -1)
    return Packed(tokens, (number % length).expand_as(real), own, number.expand_as(real))


def _rows(counts: list[list[int]]) -> tuple[list[tuple[int, int]], int, int]:
    """Deal the texts of each client out to rows, as many and as wide as cost least.

    Returns:
        The row and the place in it where each text starts; rows per client; their width.
    """
    longest, most = max(chain.from_iterable(counts)), max(map(sum, counts))
    fewest = -(-most // max(ROW, longest))
    tried = {max(fewest, -(-most // max(width, longest))) for width in WIDTHS if width <= ROW}
    dealt = [(*_dealt(counts, rows), rows) for rows in sorted(tried | {fewest})]
    starts, width, rows = min(dealt, key=lambda found: found[2] * found[1] * (found[1] + EVEN))
    return starts, rows, width


def _dealt(counts: list[list[int]], rows: int) -> tuple[list[tuple[int, int]], int]:
    """Put each text into the emptiest of its client's rows, the longest first."""
    starts, widest = [], 0
    for own in counts:
        places = [(0, 0)] * len(own)
        filled = [(0, row) for row in range(rows)]
        for text in sorted(range(len(own)), key=own.__getitem__, reverse=True):
            used, row = filled[0]
            places[text] = (row, used)
            heapq.heapreplace(filled, (used + own[text], row))
        starts += places
        widest = max(widest, *(used for used, _ in filled))
    return starts, widest
