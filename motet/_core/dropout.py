"""Dropout whose mask is a pure function of a key, so that every backend drops the same units.

`nn.Dropout` draws from a global generator: the mask then depends on which client ran first, and
under `vmap` it cannot equal the mask of a loop. Here a mask is a hash of (key, position), an
integer function that stacks like any other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MASK_32 = 0xFFFFFFFF


def hash_32(x: Tensor) -> Tensor:
    """Scramble 32-bit integers held in an int64 tensor (the two-round "lowbias32" mixer)."""
    x = x & MASK_32
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK_32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK_32
    return x ^ (x >> 16)


def uniform(key: Tensor, shape: torch.Size) -> Tensor:
    """Draw numbers in [0, 1) from an integer key."""
    positions = torch.arange(shape.numel(), device=key.device)
    bits = hash_32(hash_32(positions ^ key) + (key >> 32))
    return ((bits >> 8).to(torch.float32) / (1 << 24)).view(shape)


class KeyedDropout(nn.Module):
    """`nn.Dropout` (or its channel-wise kin) that reads its randomness from the buffer `key`."""

    key: Tensor

    def __init__(self, p: float, kept_dims: int | None = None) -> None:
        super().__init__()
        self.p = p
        self.kept_dims = (
            kept_dims  # None: every unit by itself; 2: whole channels of [batch, channel, ...]
        )
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        shape = x.shape if self.kept_dims is None else x.shape[: self.kept_dims]
        keep = uniform(self.key, shape) >= self.p
        keep = keep.view(*shape, *[1] * (x.ndim - len(shape)))
        return x * keep / (1 - self.p) if self.p < 1 else x * 0


CHANNELWISE = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def use_keyed_dropout(module: nn.Module) -> list[str]:
    """Swap every torch dropout layer inside `module`, and say where the keys go."""
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # one layer may be used in two places
            if isinstance(child, nn.Dropout):
                setattr(parent, name, KeyedDropout(child.p))
            elif isinstance(child, CHANNELWISE):
                setattr(parent, name, KeyedDropout(child.p, kept_dims=2))
    return [
        f"{path}.key" if path else "key"
        for path, child in module.named_modules()
        if isinstance(child, KeyedDropout) and child.p > 0
    ]
