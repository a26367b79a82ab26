"""Private client states on disk."""

from __future__ import annotations

from motet.stores.disk import DiskStore

__all__ = ["DiskStore"]
