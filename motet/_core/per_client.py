"""A broadcast that is not the same for every client."""

from __future__ import annotations

from typing import Any


class PerClient(dict[str, Any]):
    """A broadcast that differs between clients: client -> Down.

    Example:
        >>> import torch
        >>> down = PerClient({"basel": {"w": torch.zeros(1)}, "lyon": {"w": torch.ones(1)}})
        >>> down["lyon"]
        {'w': tensor([1.])}
    """
