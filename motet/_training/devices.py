"""Where tensors live while clients work: all moves to another device and back are made here.

The server, what clients keep and the data stay in main memory; a stack of clients moves to the
device, trains there, and what it has made comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from motet._core import tree
from motet.errors import RequestError, one_line

CPU = "cpu"


def run_on(device: str, work: Callable[..., Any], *values: Any) -> Any:
    """Call a function of trees where `device` is, on copies there; its result comes back."""
    if device == CPU:
        return work(*values)
    with at(torch.device(device)):
        result = work(*(_moved(value, device) for value in values))
    return _moved(result, CPU)


def at(device: torch.device) -> AbstractContextManager[Any]:
    """Make new tensors there; not a word about it on the processor, where they are made anyway."""
    return nullcontext() if device.type == CPU else device


def check_device(device: str) -> None:
    """Refuse a device that cannot be used here."""
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as reason:
        raise RequestError(
            f'device="{device}" cannot be used here: {one_line(reason)} Leave device= out to use '
            "the processor."
        ) from reason


def _moved(value: Any, device: str) -> Any:
    return tree.tree_map(lambda leaf: leaf.to(device), value)
