"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28x28 pixels, 10 classes.

Y. LeCun et al. "Gradient-based learning applied to document recognition." 1998.
H. Xiao, K. Rasul, R. Vollgraf. "Fashion-MNIST." arXiv:1708.07747, 2017.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from motet.data._partition import Pathological
from motet.data._registry import Dataset, Normalize, Raw
from motet.data._sets.files import Arrays, Held, Source, open_raw
from motet.data._sets.idx import parse_idx
from motet.errors import DataError

_PARTS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

MNIST_WHERE = (
    "the four idx files, gzipped or not, are at http://yann.lecun.com/exdb/mnist/ "
    "and in the folder MNIST/raw of a torchvision download."
)
FASHION_WHERE = (
    "the four idx files, gzipped or not, are at https://github.com/zalandoresearch/fashion-mnist."
)
READY_SUM = "a922b5f92f1135596733bff2ccec3eadb643317dc65c41fe6c315512afa33075"


def decode_idx(held: Held) -> Arrays:
    """Read the four idx files: training images and labels, then test images and labels."""
    images, labels, test_images, test_labels = (
        parse_idx(held.read(part), str(held.paths[part])) for part in _PARTS
    )
    return join(images, labels, test_images, test_labels)


def decode_ready(held: Held) -> Arrays:
    """Read images and labels from the converted copy, `mnist_by_writer.npz`."""
    with np.load(io.BytesIO(held.read("mnist_by_writer.npz"))) as saved:
        return join(saved["x_train"], saved["y_train"], saved["x_test"], saved["y_test"])


def join(
    images: NDArray[np.uint8],
    labels: NDArray[np.uint8],
    test_images: NDArray[np.uint8],
    test_labels: NDArray[np.uint8],
) -> Arrays:
    """Concatenate the training rows and the test rows."""
    x = np.concatenate([images, test_images])[:, np.newaxis]  # [rows, 1, height, width]
    y = np.concatenate([labels, test_labels]).astype(np.int64)
    if len(images) != len(labels) or len(x) != len(y):
        raise DataError(
            f"every image needs one label, got {len(images)} + {len(test_images)} images and "
            f"{len(labels)} + {len(test_labels)} labels. Get all four files from one source."
        )
    return {"x": x, "y": y, "test_rows": np.arange(len(images), len(x))}


def _idx_source(folders: tuple[str, ...], sums: tuple[str, str, str, str]) -> Source:
    return Source(folders, dict(zip(_PARTS, sums, strict=True)), decode_idx)


MNIST_SOURCES = (
    _idx_source(
        ("mnist", "mnist/raw", "MNIST/raw"),
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    Source(
        ("mnist_by_writer", "mnist"),
        {"mnist_by_writer.npz": READY_SUM},
        decode_ready,
    ),
)

FASHION_SOURCES = (
    _idx_source(
        ("fashion-mnist", "fashion-mnist/raw", "FashionMNIST/raw"),
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
)

MNIST_SCALE = Normalize(mean=(0.1307,), std=(0.3081,))
DIGITS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def load_mnist(sources: Sequence[Source] = MNIST_SOURCES) -> Raw:
    """Return MNIST as uint8 [70000, 1, 28, 28], official test set last."""
    return open_raw("mnist", sources, MNIST_WHERE, labels=DIGITS, normalize=MNIST_SCALE)


def load_fashion_mnist(sources: Sequence[Source] = FASHION_SOURCES) -> Raw:
    """Return Fashion-MNIST as uint8 [70000, 1, 28, 28], official test set last."""
    scale = Normalize(mean=(0.2860,), std=(0.3530,))
    return open_raw("fashion-mnist", sources, FASHION_WHERE, labels=CLOTHES, normalize=scale)


MNIST = Dataset(
    name="mnist",
    summary="70,000 handwritten digits, 28x28 grey, 10 classes",
    load=load_mnist,
    natural=False,
    default_partition=partial(Pathological, clients=20, classes=2),
    where=MNIST_WHERE,
)
FASHION_MNIST = Dataset(
    name="fashion-mnist",
    summary="70,000 pictures of clothes, 28x28 grey, 10 classes",
    load=load_fashion_mnist,
    natural=False,
    default_partition=partial(Pathological, clients=20, classes=2),
    where=FASHION_WHERE,
)
