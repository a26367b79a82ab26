"""Several arrays read as one, without concatenating them.

Clients may have an array each or share one memory-mapped file. Either way rows are numbered
consecutively across the arrays, and only the requested rows are read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from motet.errors import DataError

_CHUNK_BYTES = 1 << 22
# What numpy raises on files that are not arrays: the header is parsed as a Python literal, and
# may announce an array larger than memory.
UNREADABLE = (
    MemoryError,
    ValueError,
    OSError,
    EOFError,
    SyntaxError,
    TokenError,
    BadZipFile,
    zlib.error,
)


class Block(Protocol):
    """An array, or a file that can be indexed like one."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __getitem__(self, rows: Any) -> NDArray[Any]: ...


@dataclass(frozen=True)
class NpyFile:
    """A `.npy` file that is memory-mapped only while it is read.

    Thousands of clients have thousands of files; keeping a map open for each would exhaust the
    file handles.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def at(cls, path: Path) -> NpyFile:
        """Read the header of the file at `path`."""
        try:
            header = np.load(path, mmap_mode="r", allow_pickle=False)
        except UNREADABLE as error:
            raise DataError(f"{path} cannot be read as a numpy array: {error}") from None
        return cls(path, header.shape, header.dtype)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        return np.array(np.load(self.path, mmap_mode="r", allow_pickle=False)[rows])


@dataclass(frozen=True)
class Chain:
    """Blocks with consecutively numbered rows; all have the same shape after the first axis."""

    blocks: tuple[Block, ...]
    starts: NDArray[np.int64]  # [blocks + 1]

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Chain:
        """Join blocks by numbering their rows consecutively."""
        lengths = [block.shape[0] for block in blocks]
        return cls(tuple(blocks), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.blocks[0].shape[1:])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type that can hold the rows of every block."""
        return np.result_type(*{block.dtype for block in self.blocks})

    def take(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Read some rows, in the given order, into a new array."""
        if len(self.blocks) == 1:
            return np.asarray(self.blocks[0][rows])
        if len(rows):
            first, last = self.locate(int(rows.min()))[0], self.locate(int(rows.max()))[0]
            if first == last:  # the usual case: no second copy
                return np.asarray(self._read(first, rows))
        return self._take_from_several(rows)

    def lend(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Read some rows without copying them if they are consecutive in memory; do not modify."""
        if not _consecutive(rows):
            return self.take(rows)
        number, start = self.locate(int(rows[0]))
        block, stop = self.blocks[number], start + len(rows)
        if stop > block.shape[0] or not isinstance(block, np.ndarray):
            return self.take(rows)
        # torch warns about read-only memory, and is fastest on contiguous rows.
        plain = block.flags.writeable and block.flags.c_contiguous
        return np.asarray(block[start:stop]) if plain else self.take(rows)

    def _take_from_several(self, rows: NDArray[Any]) -> NDArray[Any]:
        taken = np.empty((len(rows), *self.shape), self.dtype)
        block_of = np.searchsorted(self.starts, rows, side="right") - 1
        for block in np.unique(block_of).tolist():
            here = block_of == block
            taken[here] = self._read(block, rows[here])
        return taken

    def _read(self, block: int, rows: NDArray[Any]) -> NDArray[Any]:
        return self.blocks[block][rows - self.starts[block]]

    def locate(self, row: int) -> tuple[int, int]:
        """Return the number of the block that holds a row, and the row's position in it."""
        number = int(self.starts.searchsorted(row, side="right")) - 1
        return number, row - int(self.starts[number])

    def chunks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Iterate over all rows, a few megabytes at a time: the first row number, and the rows."""
        row_bytes = max(1, int(np.prod(self.shape)) * self.dtype.itemsize)
        step = max(1, _CHUNK_BYTES // row_bytes)
        for start, block in zip(self.starts[:-1], self.blocks, strict=True):
            for offset in range(0, block.shape[0], step):
                yield int(start) + offset, block[offset : offset + step]


def _consecutive(rows: NDArray[Any]) -> bool:
    """Return whether rows are n, n + 1, n + 2, ...: rising, and no wider than they are many."""
    count = len(rows)
    if not count or int(rows[-1]) - int(rows[0]) != count - 1:
        return False
    return bool((rows[1:] > rows[:-1]).all())
