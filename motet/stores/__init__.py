"""Private client states on disk."""

from motet.stores.disk import DiskStore

__all__ = ["DiskStore"]
