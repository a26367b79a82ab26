"""MNIST's training digits by writer: 60,000 images, 539 writers.

The writer of each digit is known from QMNIST, which has MNIST's rows in the same order. The 10,000
test digits are by other writers, half of whom wrote 21 or fewer: they are left out, and each
writer's own digits are split instead.

C. Yadav, L. Bottou. "Cold case: the lost MNIST digits." NeurIPS 2019.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from motet.data._registry import Dataset, Raw
from motet.data._sets.files import Arrays, Held, Source, open_arrays
from motet.data._sets.idx import parse_idx
from motet.data._sets.mnist import DIGITS, MNIST_SCALE, MNIST_SOURCES, MNIST_WHERE, READY_SUM
from motet.errors import DataError

WHERE = (
    "qmnist-train-labels-idx2-int.gz is at https://github.com/facebookresearch/qmnist; "
    f"for the images, {MNIST_WHERE}"
)
_LABEL, _WRITER = 0, 2  # columns of QMNIST's label table: class, NIST series, writer, ...


def decode_qmnist(held: Held) -> Arrays:
    """Read the class and the writer of each training digit from QMNIST's label table."""
    [(name, path)] = held.paths.items()
    table = parse_idx(held.read(name), str(path))
    if table.ndim != 2 or table.shape[1] <= _WRITER:
        raise DataError(
            f"{path} should hold a table with a writer column, got shape {table.shape}. "
            "Use qmnist-train-labels-idx2-int.gz, not the idx1 file."
        )
    return {"y": table[:, _LABEL].astype(np.int64), "writer": table[:, _WRITER].astype(np.int64)}


def decode_ready(held: Held) -> Arrays:
    """Read the class and the writer of each training digit from the converted copy."""
    [name] = held.paths
    with np.load(io.BytesIO(held.read(name))) as saved:
        return {
            "y": saved["y_train"].astype(np.int64),
            "writer": saved["writer_train"].astype(np.int64),
        }


_IDS_SUM = "8ea47d96f8f2d51db97d4c3c5812c04ed050720f6d300bc8ec49daa988a3d65f"

WRITER_SOURCES = (
    Source(
        ("mnist-by-writer", "qmnist", "mnist", "QMNIST/raw"),
        {"qmnist-train-labels-idx2-int": None},
        decode_qmnist,
    ),
    Source(("mnist_by_writer",), {"mnist_by_writer.npz": READY_SUM}, decode_ready),
    Source(
        ("mnist_by_writer", "mnist-by-writer"),
        {"mnist_writer_ids.npz": _IDS_SUM},
        decode_ready,
    ),
)


def load(
    images: Sequence[Source] = MNIST_SOURCES, writers: Sequence[Source] = WRITER_SOURCES
) -> Raw:
    """Return uint8 [60000, 1, 28, 28] with each row's client: "writer-0000" and so on."""
    drawn = open_arrays("mnist", images, MNIST_WHERE)
    written = open_arrays("mnist-by-writer", writers, WHERE)
    rows = int(drawn["test_rows"][0])
    if not np.array_equal(drawn["y"][:rows], written["y"]):
        raise DataError(
            f"the writer table ({len(written['y'])} rows) and MNIST's training set ({rows} rows) "
            "should agree on every digit, but they do not: one of them is incomplete or in a "
            "different order. Use the published files."
        )
    return Raw(
        x=drawn["x"][:rows],
        y=drawn["y"][:rows],
        clients=writer_names(written["writer"]),
        labels=DIGITS,
        normalize=MNIST_SCALE,
        classes=10,
    )


def writer_names(writers: NDArray[np.int64]) -> NDArray[np.str_]:
    """Name the client of each row after its writer's number."""
    known, position = np.unique(writers, return_inverse=True)
    return np.array([f"writer-{number:04d}" for number in known])[position]


MNIST_BY_WRITER = Dataset(
    name="mnist-by-writer",
    summary="60,000 handwritten digits, one client per writer (539), 10 classes",
    load=load,
    natural=True,
    default_partition=None,
    where=WHERE,
)
