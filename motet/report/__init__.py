"""The report: one self-contained HTML page about one or several comparisons."""

from __future__ import annotations

from motet.report._directories import read_all, unchanged
from motet.report._writing import page, write, write_page

__all__ = ["page", "read_all", "unchanged", "write", "write_page"]
