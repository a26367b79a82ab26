"""CIFAR-10 and CIFAR-100: 50,000 + 10,000 colour images of 32x32 pixels, 10 or 100 classes.

The binary version is read: the Python version is pickled, and unpickling a file can run any code.

A. Krizhevsky. "Learning multiple layers of features from tiny images." 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from motet.data._partition import Pathological
from motet.data._registry import Dataset, Normalize, Raw
from motet.data._sets.archive import member_reader
from motet.data._sets.cifar_names import CIFAR10_NAMES, CIFAR100_NAMES
from motet.data._sets.cifar_planes import decode_planes
from motet.data._sets.files import Arrays, Held, Source, open_raw
from motet.errors import DataError

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32

_WHERE = (
    "{archive}, the *binary* version (the Python version is pickled and never read), "
    "is at https://www.cs.toronto.edu/~kriz/cifar.html."
)
CIFAR10_WHERE = _WHERE.format(archive="cifar-10-binary.tar.gz")
CIFAR100_WHERE = _WHERE.format(archive="cifar-100-binary.tar.gz")


class Records(NamedTuple):
    """The images of one file, with the label bytes before each."""

    labels: NDArray[np.uint8]  # [rows, label_bytes], the class last
    images: NDArray[np.uint8]  # [rows, 3, 32, 32]


def parse_records(contents: bytes, label_bytes: int, origin: str) -> Records:
    """Read records of one or two label bytes and 3,072 pixels: all red, all green, all blue."""
    size = label_bytes + _PIXELS
    if not contents or len(contents) % size:
        raise DataError(
            f"{origin} should hold whole records of {size:,} bytes; it has {len(contents):,} bytes."
            " The download is incomplete, or this is not the binary version. Get it again."
        )
    table = np.frombuffer(contents, np.uint8).reshape(-1, size)
    return Records(table[:, :label_bytes], table[:, label_bytes:].reshape(-1, *_SHAPE))


def assemble(train: Sequence[Records], test: Records) -> Arrays:
    """Join the files in order, the test set last; a second label byte becomes the coarse label."""
    files = [*train, test]
    labels = np.concatenate([file.labels for file in files]).astype(np.int64)
    x = np.concatenate([file.images for file in files])
    arrays: Arrays = {
        "x": x,
        "y": labels[:, -1],
        "test_rows": np.arange(len(x) - len(test.images), len(x)),
    }
    return arrays if labels.shape[1] == 1 else arrays | {"coarse": labels[:, 0]}


def check_complete(arrays: Arrays, *, classes: int, train: int, test: int) -> None:
    """Refuse a set that does not have exactly `train` and `test` examples of every class.

    Used instead of a checksum where none is published for the unpacked files.
    """
    split = len(arrays["y"]) - len(arrays["test_rows"])
    for part, rows, expected in (
        ("training", slice(split), train),
        ("test", slice(split, None), test),
    ):
        counts = np.bincount(arrays["y"][rows], minlength=classes)
        if len(counts) != classes or (counts != expected).any():
            raise DataError(
                f"the {part} set should have {expected} images of each of {classes} classes; it "
                f"has {counts.min()} to {counts.max()} of {len(counts)} classes. "
                "Get the published files."
            )


TRAIN10 = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST10 = "test_batch.bin"


def decode_cifar10(held: Held) -> Arrays:
    """Read the six files of CIFAR-10, unpacked or in the published archive."""
    return _decode(held, (*TRAIN10, TEST10), label_bytes=1)


def decode_cifar100(held: Held) -> Arrays:
    """Read the two files of CIFAR-100, unpacked or in the published archive."""
    arrays = _decode(held, ("train.bin", "test.bin"), label_bytes=2)
    check_complete(arrays, classes=100, train=500, test=100)
    return arrays


def _decode(held: Held, names: Sequence[str], label_bytes: int) -> Arrays:
    read, origin = member_reader(held, names)
    *train, test = (parse_records(read(n), label_bytes, f"{n} in {origin}") for n in names)
    return assemble(train, test)


_ARCHIVE10_SUM = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

CIFAR10_SOURCES = (
    Source(
        ("cifar10", "cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"),
        {
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
        decode_cifar10,
    ),
    Source(("cifar10",), {"cifar-10-binary.tar.gz": _ARCHIVE10_SUM}, decode_cifar10),
    Source(
        ("cifar10",),
        {
            "train_0.npy.xz": "ea1e931127a42977fd8ff94a520858aa6cf3674bbef6a7faffda52b66fe6e0fe",
            "train_1.npy.xz": "bc39f2239d5bfd711c15e743d3ef7cf235be3d3eb99704386fc8e0e960550035",
            "train_2.npy.xz": "6f2f4203d97c586fb5db85776867c1d34be9a816dea89db98aa6e716dbc57133",
            "train_3.npy.xz": "788dae4ba51d28691bf7f1fb5c6613aa88b6031df9423484e4ae32d3a60b992f",
            "train_4.npy.xz": "5905b00d095ece1cfae990982b313013f3d34993fb788650f6689fd78bc66889",
            "test.npy.xz": "798d73aebcbc66b8f6cfc5a9be6abf3f6125918c23c9dfc2e8b67f4fd428caeb",
            "labels.npz": "b7817019a95f42df948eef86e70b736fb1fe56fea4c40a011acb9ed0abd9ffa3",
        },
        decode_planes,
    ),
)

# No SHA-256 is published for CIFAR-100: `check_complete` checks the contents instead.
CIFAR100_SOURCES = (
    Source(
        ("cifar100", "cifar100/cifar-100-binary", "cifar-100-binary"),
        {"train.bin": None, "test.bin": None},
        decode_cifar100,
    ),
    Source(("cifar100",), {"cifar-100-binary.tar.gz": None}, decode_cifar100),
    Source(  # the same images in a random order
        ("cifar100",),
        {
            "train_0.npy.xz": "fa793f63007597c7556c295b6c25b268ed133e56dbb156df76b8cdf41e2d7c9b",
            "train_1.npy.xz": "dfa76e42008133fdde9e8d8eb17f11dcdc66c7b549e1aa596b057232dd9ef79b",
            "train_2.npy.xz": "bf4dcdd48e9d72a4ce9a48387264d32c0c7f6bd170d7e426424625c5b7a59889",
            "train_3.npy.xz": "066c8991292ae7801d21b80cba2c6d0640462252b4248c28ee1efaa7e832a629",
            "train_4.npy.xz": "6c89139c07bb5757bf1cd2f2440907afcfc8f3189725fca02bb2a185b462e93c",
            "test.npy.xz": "21291bf13673e6d3f724c550aed94f1985e909408dde981d142eedd008642037",
            "labels.npz": "c21db32bab537eefe7830d7f276b1cae0bea69e5f460d23e6dff60e0486bb7cb",
        },
        decode_planes,
    ),
)


def load_cifar10(sources: Sequence[Source] = CIFAR10_SOURCES) -> Raw:
    """Return CIFAR-10 as uint8 [60000, 3, 32, 32], official test set last."""
    scale = Normalize(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
    return open_raw("cifar10", sources, CIFAR10_WHERE, labels=CIFAR10_NAMES, normalize=scale)


def load_cifar100(sources: Sequence[Source] = CIFAR100_SOURCES) -> Raw:
    """Return CIFAR-100 as uint8 [60000, 3, 32, 32] with its superclasses, test set last."""
    scale = Normalize(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))
    return open_raw("cifar100", sources, CIFAR100_WHERE, labels=CIFAR100_NAMES, normalize=scale)


CIFAR10 = Dataset(
    name="cifar10",
    summary="60,000 colour pictures, 32x32, 10 classes",
    load=load_cifar10,
    natural=False,
    default_partition=partial(Pathological, clients=20, classes=2),
    where=CIFAR10_WHERE,
)
CIFAR100 = Dataset(
    name="cifar100",
    summary="60,000 colour pictures, 32x32, 100 classes in 20 superclasses",
    load=load_cifar100,
    natural=False,
    default_partition=partial(Pathological, clients=20, classes=10),
    where=CIFAR100_WHERE,
)
