"""A network with a frozen body and low-rank adapters, by name: `frozen_networks:adapted`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import nn

from motet.models import MLP, with_lora


def adapted(shape: Sequence[int], classes: int) -> nn.Module:
    """Make the network as server and sites do, each for itself."""
    make = partial(MLP, shape, classes, hidden=(32, 16))
    return with_lora(make, "body.*", rank=2, train="head")()
