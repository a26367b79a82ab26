"""Checks of the networks that users pass, before anything depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from motet.errors import StructureError


def built(build: Callable[[], Any]) -> nn.Module:
    """Build a network, and refuse what cannot be trained as named tensors of real numbers."""
    if isinstance(build, nn.Module):
        raise StructureError(
            "build= expects a function that makes the network, got the network itself. Write "
            "build=lambda: MyNetwork(...), so that every run can draw its own first weights."
        )
    network = build()
    if not isinstance(network, nn.Module):
        got = "the class" if isinstance(network, type) else "an object of type"
        name = network.__name__ if isinstance(network, type) else type(network).__name__
        raise StructureError(f"build= must return an nn.Module, got {got} {name}.")
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if is_lazy(tensor):
            raise StructureError(
                f'"{name}" belongs to a lazy layer, whose shape is unknown until it sees data. '
                "Call the network once inside build=, on an input of the right shape, or use the "
                "layer that is not lazy."
            )
        if tensor.is_complex():
            raise StructureError(
                f'"{name}" holds complex numbers, which are not supported. Keep the real and the '
                "imaginary part as real numbers (torch.view_as_real) and join them in forward "
                "(torch.view_as_complex)."
            )
    return network
