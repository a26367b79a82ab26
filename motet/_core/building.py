"""Checks of the networks that users pass, before anything depends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
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
    if isinstance(network, torch.jit.ScriptModule):
        raise StructureError(
            "build= must return a network whose weights can be replaced by those of a client, got "
            "a TorchScript module. Return the nn.Module as it was before torch.jit.script or "
            "torch.jit.trace."
        )
    if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise StructureError(
            f"build= must return the network itself, got it wrapped in {type(network).__name__}. "
            "Leave the wrapper out: Motet spreads clients over cores and devices by itself."
        )
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
