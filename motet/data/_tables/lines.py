"""Lines of a text file as an editor numbers them, for messages about rows."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

MOST_ROWS = 5000  # rows that are looked at for the usual width


class Uneven(NamedTuple):
    """A row with another number of cells than expected.

    Attributes:
        line: Its line.
        found: Cells it has.
        expected: Cells that were expected.
        text: The row.
        likely_header: Line of the first row with the usual width, if this row is before it.
    """

    line: int
    found: int
    expected: int
    text: str
    likely_header: int | None = None


@dataclass(frozen=True, eq=False)
class Lines:
    """Finds the line of a row; the file is only read again if a message needs it.

    Attributes:
        contents: The file's bytes.
        encoding: Of the file.
        delimiter: Between two cells.
        skip: Lines before the header.
        headless: Whether the first row is data already.
        rows: Rows of data; None if the file could not be read.
    """

    contents: memoryview
    encoding: str
    delimiter: str
    skip: int
    headless: bool
    rows: int | None = None

    def name(self, row: int) -> str:
        """Name a row of data, counted from 0, by its line."""
        return f"row {self.line(row)}"

    def line(self, row: int) -> int:
        """Find the line on which a row of data starts."""
        if not self._may_differ:
            return self.skip + row + (1 if self.headless else 2)
        for number, (line, _) in enumerate(self._records()):
            if number == row + (0 if self.headless else 1):
                return line
        return self.skip + row + (1 if self.headless else 2)

    @cached_property
    def _may_differ(self) -> bool:
        """Whether empty lines or line breaks in cells set lines and rows apart."""
        if codecs.lookup(self.encoding).name.startswith(("utf-16", "utf-32")):
            return True
        data = bytes(self.contents)
        ends = data.count(b"\n") + (not data.endswith(b"\n"))
        return self.rows is None or ends != self.skip + (not self.headless) + self.rows

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the first line and the cells of every row that is not empty."""
        import pyarrow

        # Not BytesIO, which copies the whole file.
        bytes_in = pyarrow.BufferReader(self.contents)
        # A byte order mark is not part of the first cell.
        encoding = "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding
        text = io.TextIOWrapper(bytes_in, encoding=encoding, errors="replace", newline="")
        for _ in range(self.skip):
            text.readline()
        reader, line = csv.reader(text, delimiter=self.delimiter), 0
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error:
                line = reader.line_num
                continue
            if cells:
                yield self.skip + line + 1, cells
            line = reader.line_num

    def first_rows(self, most: int) -> tuple[list[str], list[list[str]]]:
        """Return the cells of the header and of the first rows."""
        records = [cells for _, (_, cells) in zip(range(most + 1), self._records(), strict=False)]
        return (records[0], records[1:]) if records else ([], [])

    def first_uneven(self) -> Uneven | None:
        """Find the first row whose number of cells is not the header's."""
        widths: Counter[int] = Counter()
        uneven: Uneven | None = None
        expected = 0
        first: dict[int, int] = {}
        for number, (line, cells) in enumerate(self._records()):
            expected = expected or len(cells)
            widths[len(cells)] += 1
            first.setdefault(len(cells), line)
            if len(cells) != expected and uneven is None:
                text = self.delimiter.join(cells)
                uneven = Uneven(line, len(cells), expected, text)
            if number > MOST_ROWS and uneven is not None:
                break
        if uneven is None:
            return None
        usual, rows = widths.most_common(1)[0]
        if usual != expected and rows > 0.5 * widths.total():
            start = first[expected]
            return Uneven(start, expected, usual, "", likely_header=first[usual])
        return uneven
