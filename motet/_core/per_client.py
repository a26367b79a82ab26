"""A broadcast that is not the same for every client."""

from __future__ import annotations

from typing import Any


class PerClient(dict[str, Any]):
    """A broadcast that differs between clients: client -> Down."""
