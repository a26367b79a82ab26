"""FEMNIST: handwritten digits and letters by writer, 62 classes, 28x28 pixels.

LEAF's JSON files (train/*.json and test/*.json) and TensorFlow Federated's HDF5 files are read. In
both, paper is 1 and ink is 0; here ink is 255, as in MNIST.

S. Caldas et al. "LEAF: a benchmark for federated settings." arXiv:1812.01097, 2018.
G. Cohen et al. "EMNIST: extending MNIST to handwritten letters." IJCNN 2017.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from motet.data._registry import Dataset, Raw
from motet.data._sets.files import Arrays, Held, Source, open_raw
from motet.data._sets.per_user import User, as_numbers, leaf_split, tff_users
from motet.errors import DataError

WHERE = (
    "LEAF's JSON files are made by data/femnist of https://github.com/TalwalkarLab/leaf; put its "
    "folders train and test here. Or fed_emnist_train.h5 and fed_emnist_test.h5 are in "
    "fed_emnist.tar.bz2 of TensorFlow Federated."
)
LABELS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
_PIXELS = (28, 28)


def assemble(parts: Mapping[str, Iterable[User]], x: str, y: str, where: str) -> Arrays:
    """Join the rows of all writers, split by split."""
    images, labels, clients, splits = [], [], [], []
    for split, users in parts.items():
        for user in users:
            pixels = as_numbers(user.fields[x], _PIXELS, f'the images of "{user.name}"', where)
            if len(pixels) and not (pixels.min() >= 0 and pixels.max() <= 1):
                raise DataError(
                    f'the images of "{user.name}" should be numbers from 0 (ink) to 1 (paper); '
                    f"found {pixels.min():g} to {pixels.max():g}. Get the files again: {where}"
                )
            ink = np.rint(255 * (1 - pixels)).astype(np.uint8)
            images.append(ink[:, None])
            labels.append(_classes(user, y, where))
            clients += [user.name] * len(ink)
            splits += [split] * len(ink)
    if not images:
        raise DataError(f"the files hold no writer. Get them again: {where}")
    return {
        "x": np.concatenate(images),
        "y": np.concatenate(labels),
        "clients": np.array(clients),
        "split": np.array(splits),
    }


def _classes(user: User, y: str, where: str) -> np.ndarray:
    labels = as_numbers(user.fields[y], (), f'the labels of "{user.name}"', where)
    wrong = labels[~np.isin(labels, np.arange(len(LABELS)))]
    if len(wrong):
        raise DataError(
            f'the labels of "{user.name}" should be 0 to {len(LABELS) - 1}; found '
            f"{wrong[0]:g}. Get the files again: {where}"
        )
    return labels.astype(np.int64)


def decode_leaf(held: Held) -> Arrays:
    """Read LEAF's JSON files; those in a folder called test are the test set."""
    parts = {split: leaf_split(held, split) for split in ("train", "test")}
    return assemble(parts, "x", "y", WHERE)


def decode_tff(held: Held) -> Arrays:
    """Read TensorFlow Federated's two HDF5 files."""
    parts = {
        split: tff_users(held.paths[f"fed_emnist_{split}.h5"], ("pixels", "label"), WHERE)
        for split in ("train", "test")
    }
    return assemble(parts, "pixels", "label", WHERE)


SOURCES = (
    Source(("femnist", "emnist"), {}, decode_leaf, patterns=("train/*.json", "test/*.json")),
    Source(
        ("femnist", "emnist"),
        {"fed_emnist_train.h5": None, "fed_emnist_test.h5": None},
        decode_tff,
    ),
)


def load(sources: Sequence[Source] = SOURCES) -> Raw:
    """Return uint8 [rows, 1, 28, 28] with each row's writer and split."""
    return open_raw("femnist", sources, WHERE, labels=LABELS)


FEMNIST = Dataset(
    name="femnist",
    summary="handwritten digits and letters, 28x28, 62 classes, one client per writer",
    load=load,
    natural=True,
    default_partition=None,
    where=WHERE,
)
