"""Normal numbers that are a pure function of a key: the same in a loop and in a stack of clients.

Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) in integer
arithmetic of torch, and Box and Muller's transform. Statistically sound, but not a cryptographic
generator: anyone who knows the key knows the noise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MASK = 0xFFFFFFFF
ROUNDS = 10
FACTORS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

Words = tuple[Tensor, Tensor, Tensor, Tensor]  # 32 bits each, held in int64


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Scramble counters of four words by a key of two."""
    (a, b, c, d), (low, high) = counter, key
    for _ in range(ROUNDS):
        # The product of two 32-bit numbers wraps around in int64, but all of its bits are right.
        first, second = a * FACTORS[0], c * FACTORS[1]
        a, b, c, d = _upper(second) ^ b ^ low, second & MASK, _upper(first) ^ d ^ high, first & MASK
        low, high = (low + KEY_STEPS[0]) & MASK, (high + KEY_STEPS[1]) & MASK
    return a, b, c, d


def draw_words(key: Tensor, stream: int, size: int) -> Words:
    """Draw 4 x `size` words; streams of one key, and keys, are independent of each other."""
    position = torch.arange(size, device=key.device)
    zero = torch.zeros_like(position)
    return philox((position, zero + stream, zero, zero), (key & MASK, _upper(key)))


def normal(key: Tensor, stream: int, shape: torch.Size) -> Tensor:
    """Draw standard normal numbers in double precision; none is beyond 6.8."""
    size = shape.numel()
    words = draw_words(key, stream, -(-size // 4))
    numbers = torch.cat([*_box_muller(*words[:2]), *_box_muller(*words[2:])])
    return numbers[:size].view(shape)


def _box_muller(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    # Half a unit up: the logarithm of 0 would be infinite.
    radius = (-2 * ((first.double() + 0.5) / 2**32).log()).sqrt()
    angle = second.double() * (2 * math.pi / 2**32)
    return radius * angle.cos(), radius * angle.sin()


def _upper(word: Tensor) -> Tensor:
    return (word >> 32) & MASK
