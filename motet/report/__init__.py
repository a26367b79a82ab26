"""One self-contained page about a comparison: what won, for whom, at what cost, and how."""

from __future__ import annotations

from motet.report.directories import read_all
from motet.report.writing import page, write

__all__ = ["page", "read_all", "write"]
