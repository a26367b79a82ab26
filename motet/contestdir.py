"""Directories of comparisons.

config.toml       the complete comparison, ready to be run again
data.json         the manifest of the split
results.jsonl     a line per method and seed that has finished
comparison.json   all of it, once every method has finished
"""

from __future__ import annotations

from motet.atomic import write_atomically
from motet.comparison import Comparison, Row
from motet.folder import COMPARISON, RESULTS, Folder
from motet.records import json_text


class ContestDirectory(Folder):
    """The directory of one comparison."""

    command = "compare"

    def record(self, row: Row) -> None:
        """Append a method that has finished."""
        self.append(RESULTS, row.to_dict())

    def finished(self) -> dict[tuple[str, int], Row]:
        """Read what has finished, by label and seed."""
        lines = self.lines(RESULTS)
        self.keep_lines(RESULTS, lines)  # without what a crash cut short
        rows = [Row.from_dict(line) for line in lines]
        return {(row.label, row.seed): row for row in rows}

    def conclude(self, comparison: Comparison) -> None:
        """Write the whole comparison down."""
        text = json_text(comparison.to_dict(), indent=2) + "\n"
        write_atomically(self.path / COMPARISON, text.encode())
