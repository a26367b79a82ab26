"""A federation is an index over its data, not a copy of them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from motet.data import Split, from_rows

ROWS, WIDTH, CLIENTS = 1_000_000, 32, 10_000
INPUT_BYTES = ROWS * WIDTH * 4


@pytest.fixture
def memory_mapped(tmp_path):
    """A million rows on disk, a hundred for each of ten thousand clients."""
    x = np.lib.format.open_memmap(
        tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(ROWS, WIDTH)
    )
    x[:: ROWS // 100, 0] = np.arange(100)
    x.flush()
    del x
    return np.load(tmp_path / "x.npy", mmap_mode="r")


def test_opening_a_million_rows_copies_no_inputs(memory_mapped):
    clients = np.arange(ROWS, dtype=np.int32) % CLIENTS
    y = (np.arange(ROWS) % 10).astype(np.int8)
    tracemalloc.start()
    try:
        data = from_rows(memory_mapped, y, clients, split=Split(val=0.0, test=0.0))
        kept, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        x, _ = data.examples("42", "train")
        read = tracemalloc.get_traced_memory()[1] - kept
    finally:
        tracemalloc.stop()
    assert len(data.clients) == CLIENTS
    assert np.shares_memory(data.x.blocks[0], memory_mapped)
    assert x.shape == (100, WIDTH)
    assert kept < 8 * ROWS  # a row number each, and the names; inputs are 128 bytes a row
    assert peak < INPUT_BYTES
    assert read < 1_000_000
