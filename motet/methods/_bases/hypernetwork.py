"""A network that makes networks: from a client's embedding to the parameters of its model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from motet._core.keys import Key
from motet._core.tree import State, float_type

SMALL = 0.02  # scale of the last layer at the start: all clients begin near the common model


def draw_hypernetwork(target: State, embedding: int, hidden: Sequence[int], key: Key) -> State:
    """Draw the weights: an MLP, then one linear layer per tensor of the target, biased to it."""
    rng, kind = key.numpy(), float_type(target)
    widths = [embedding, *hidden]
    state: State = {}
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        state[f"hidden{number}.weight"] = _normal(
            rng, (outputs, inputs), 1 / max(inputs, 1) ** 0.5, kind
        )
        state[f"hidden{number}.bias"] = torch.zeros(outputs, dtype=kind)
    for name, value in target.items():
        state[f"make.{name}.weight"] = _normal(rng, (value.numel(), widths[-1]), SMALL, kind)
        # Deviates: The last layers are biased to the common initial model.
        state[f"make.{name}.bias"] = value.flatten().to(kind, copy=True)
    return state


def generate(hyper: State, embedding: Tensor, target: State) -> State:
    """Make a model of the target's names and shapes."""
    z, number = embedding, 0
    while f"hidden{number}.weight" in hyper:
        z = (hyper[f"hidden{number}.weight"] @ z + hyper[f"hidden{number}.bias"]).relu()
        number += 1
    return {
        name: (hyper[f"make.{name}.weight"] @ z + hyper[f"make.{name}.bias"])
        .view(value.shape)
        .to(value.dtype)
        for name, value in target.items()
    }


def draw_embeddings(clients: int, size: int, key: Key, dtype: torch.dtype) -> Tensor:
    """Draw an embedding for each client."""
    return _normal(key.numpy(), (clients, size), 1.0, dtype)


def _normal(
    rng: np.random.Generator, shape: tuple[int, ...], scale: float, dtype: torch.dtype
) -> Tensor:
    return torch.from_numpy(scale * rng.standard_normal(shape)).to(dtype)
