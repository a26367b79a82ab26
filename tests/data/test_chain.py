"""Several arrays read as one: copied, or lent as views if rows are consecutive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.data._chain import Chain, NpyFile

BLOCKS = [np.arange(n * 6.0).reshape(n, 2, 3) + 100 * n for n in (4, 1, 7)]
ROWS = sum(len(block) for block in BLOCKS)


@given(st.lists(st.integers(0, ROWS - 1)))
def test_lent_rows_are_the_rows_that_would_be_copied(rows):
    chain, wanted = Chain.of(BLOCKS), np.array(rows, np.int64)
    assert np.array_equal(chain.lend(wanted), chain.take(wanted))


@given(st.integers(0, ROWS), st.integers(0, ROWS))
def test_lent_ranges_are_the_rows_that_would_be_copied(start, stop):
    chain, wanted = Chain.of(BLOCKS), np.arange(start, stop)
    assert np.array_equal(chain.lend(wanted), chain.take(wanted))


def test_rows_in_order_are_lent_without_a_copy():
    chain = Chain.of(BLOCKS)
    assert np.shares_memory(chain.lend(np.arange(5, 9)), BLOCKS[2])
    assert not np.shares_memory(chain.take(np.arange(5, 9)), BLOCKS[2])


def read_only(block):
    block = block.copy()
    block.flags.writeable = False
    return block


@pytest.mark.parametrize(
    "unfit",
    [read_only, np.asfortranarray, lambda block: np.flip(block, 0)],
    ids=["read only", "by columns", "backwards"],
)
def test_memory_that_torch_cannot_use_directly_is_copied(unfit):
    block = unfit(BLOCKS[2])
    lent = Chain.of([block]).lend(np.arange(2, 5))
    assert np.array_equal(lent, block[2:5])
    assert not np.shares_memory(lent, block)
    assert lent.flags.writeable


def test_rows_of_a_file_are_read_from_it(tmp_path):
    np.save(tmp_path / "x.npy", BLOCKS[2])
    chain = Chain.of([NpyFile.at(tmp_path / "x.npy")])
    assert np.array_equal(chain.lend(np.arange(2, 5)), BLOCKS[2][2:5])
