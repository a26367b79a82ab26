"""The published image files, read from small files in the same formats."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from motet.data._sets import cifar, mnist, mnist_by_writer
from motet.data._sets.cifar_names import CIFAR100_NAMES
from motet.data._sets.cifar_planes import undo_differences
from motet.data._sets.files import Held, Source
from motet.data._sets.idx import parse_idx
from motet.errors import DataError


@pytest.fixture(autouse=True)
def folder(root):
    return root


def idx(array: np.ndarray) -> bytes:
    code = {np.dtype("u1"): 0x08, np.dtype(">i4"): 0x0C}[array.dtype]
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()
    )


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def unchecked(source: Source) -> Source:
    """Read generated files, which have their own checksums."""
    return replace(source, sums=dict.fromkeys(source.sums))


def write_mnist(folder, *, compress: bool = False) -> tuple[np.ndarray, np.ndarray]:
    x, y = pixels(5, 28, 28), np.array([3, 1, 4, 1, 5], np.uint8)
    parts = {
        "train-images-idx3-ubyte": idx(x[:3]),
        "train-labels-idx1-ubyte": idx(y[:3]),
        "t10k-images-idx3-ubyte": idx(x[3:]),
        "t10k-labels-idx1-ubyte": idx(y[3:]),
    }
    folder.mkdir(parents=True)
    for name, contents in parts.items():
        packed = gzip.compress(contents) if compress else contents
        (folder / (f"{name}.gz" if compress else name)).write_bytes(packed)
    return x, y


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("place", ["mnist", "mnist/raw", "MNIST/raw"])
def test_mnist_is_read_gzipped_or_not_training_rows_first(folder, place, compress):
    x, y = write_mnist(folder / place, compress=compress)
    raw = mnist.load_mnist([unchecked(mnist.MNIST_SOURCES[0])])
    assert raw.x.dtype == np.uint8
    assert np.array_equal(raw.x[:, 0], x)
    assert raw.y.tolist() == y.tolist()
    assert raw.test_rows.tolist() == [3, 4]
    assert raw.classes == len(raw.labels) == 10


def test_fashion_mnist_is_not_mistaken_for_mnist(folder):
    write_mnist(folder / "mnist")
    with pytest.raises(DataError, match="fashion-mnist"):
        mnist.load_fashion_mnist([unchecked(mnist.FASHION_SOURCES[0])])


def test_mnist_files_with_other_contents_are_refused(folder):
    write_mnist(folder / "mnist")
    with pytest.raises(DataError, match="SHA-256 ba891046e650"):
        mnist.load_mnist()


def test_images_and_labels_of_different_sets_are_refused(folder):
    write_mnist(folder / "mnist")
    (folder / "mnist/train-labels-idx1-ubyte").write_bytes(idx(np.zeros(7, np.uint8)))
    with pytest.raises(DataError, match=r"got 3 \+ 2 images and 7 \+ 2 labels"):
        mnist.load_mnist([unchecked(mnist.MNIST_SOURCES[0])])


def test_idx_reads_big_endian_integers():
    table = np.array([[1, -2], [70_000, 4]], ">i4")
    assert parse_idx(idx(table), "table").tolist() == table.tolist()


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [
        (b"", "begins with nothing"),
        (b"<html>", "begins with 3c 68 74 6d"),
        (idx(pixels(3, 28, 28))[:-1], "should have 2,368 bytes .* got 2,367"),
        (idx(pixels(3, 28, 28)) + b"\0", "should have 2,368 bytes .* got 2,369"),
        (idx(pixels(3, 28, 28))[:6], "damaged"),
    ],
)
def test_idx_files_that_are_cut_short_or_something_else_are_refused(contents, complaint):
    with pytest.raises(DataError, match=f"toy.*{complaint}"):
        parse_idx(contents, "toy")


def write_writers(folder, labels: list[int], writers: list[int]) -> None:
    table = np.zeros((len(labels), 8), ">i4")
    table[:, 0], table[:, 2] = labels, writers
    (folder / "qmnist-train-labels-idx2-int.gz").write_bytes(gzip.compress(idx(table)))


def load_by_writer():
    return mnist_by_writer.load([unchecked(mnist.MNIST_SOURCES[0])])


def test_digits_go_to_their_writers_and_the_test_digits_are_left_out(folder):
    x, _ = write_mnist(folder / "mnist")
    write_writers(folder / "mnist", [3, 1, 4], [12, 7, 12])
    raw = load_by_writer()
    assert raw.clients.tolist() == ["writer-0012", "writer-0007", "writer-0012"]
    assert np.array_equal(raw.x[:, 0], x[:3])
    assert raw.test_rows is None
    assert isinstance(raw.x, np.memmap)


def test_a_writer_table_in_another_order_is_refused(folder):
    write_mnist(folder / "mnist")
    write_writers(folder / "mnist", [1, 3, 4], [12, 7, 12])
    with pytest.raises(DataError, match="agree on every digit"):
        load_by_writer()


def test_the_qmnist_file_without_writers_is_refused(folder):
    write_mnist(folder / "mnist")
    wrong = idx(np.array([3, 1, 4], np.uint8))
    (folder / "mnist/qmnist-train-labels-idx2-int").write_bytes(wrong)
    with pytest.raises(DataError, match="writer column"):
        load_by_writer()


def cifar10_files() -> tuple[dict[str, bytes], np.ndarray, np.ndarray]:
    x, y = pixels(12, 3, 32, 32), np.arange(12) % 10
    records = [bytes([label]) + image.tobytes() for label, image in zip(y, x, strict=True)]
    names = [*cifar.TRAIN10, cifar.TEST10]
    return {n: b"".join(records[2 * k : 2 * k + 2]) for k, n in enumerate(names)}, x, y


def archive(files: dict[str, bytes], folder: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, contents in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(contents)
            packed.addfile(member, io.BytesIO(contents))
    return buffer.getvalue()


@pytest.mark.parametrize("place", ["cifar10", "cifar10/cifar-10-batches-bin"])
def test_cifar10_is_read_from_unpacked_files_in_order(folder, place):
    files, x, y = cifar10_files()
    (folder / place).mkdir(parents=True)
    for name, contents in files.items():
        (folder / place / name).write_bytes(contents)
    raw = cifar.load_cifar10([unchecked(cifar.CIFAR10_SOURCES[0])])
    assert np.array_equal(raw.x, x)
    assert raw.y.tolist() == y.tolist()
    assert raw.test_rows.tolist() == [10, 11]
    assert raw.coarse is None


def test_cifar10_is_read_from_the_published_archive(folder):
    files, x, y = cifar10_files()
    (folder / "cifar10").mkdir(parents=True)
    packed = archive(dict(reversed(files.items())), "cifar-10-batches-bin")
    (folder / "cifar10/cifar-10-binary.tar.gz").write_bytes(packed)
    raw = cifar.load_cifar10([unchecked(cifar.CIFAR10_SOURCES[1])])
    assert np.array_equal(raw.x, x)
    assert raw.y.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda packed: packed[: len(packed) // 2], "cannot be unpacked"),
        (lambda packed: b"<html>", "cannot be unpacked"),
        (lambda packed: archive({"readme.txt": b""}, "cifar"), "should contain data_batch_1.bin"),
    ],
)
def test_a_damaged_or_wrong_archive_is_refused(folder, spoil, complaint):
    (folder / "cifar10").mkdir(parents=True)
    packed = spoil(archive(cifar10_files()[0], "cifar-10-batches-bin"))
    (folder / "cifar10/cifar-10-binary.tar.gz").write_bytes(packed)
    with pytest.raises(DataError, match=complaint):
        cifar.load_cifar10([unchecked(cifar.CIFAR10_SOURCES[1])])


def test_a_truncated_cifar_file_is_refused():
    with pytest.raises(DataError, match="whole records of 3,073 bytes; it has 3,072"):
        cifar.parse_records(bytes(3072), 1, "data_batch_1.bin")


def test_the_last_label_byte_is_the_class_and_the_first_the_superclass():
    image = pixels(3, 32, 32)
    records = cifar.parse_records(bytes([11, 42]) + image.tobytes(), 2, "train.bin")
    arrays = cifar.assemble([records], records)
    assert arrays["coarse"].tolist() == [11, 11]
    assert arrays["y"].tolist() == [42, 42]
    assert np.array_equal(arrays["x"][0], image)


def test_an_incomplete_cifar100_is_refused(folder):
    (folder / "cifar100").mkdir(parents=True)
    for name in ("train.bin", "test.bin"):
        (folder / "cifar100" / name).write_bytes(bytes(3074 * 3))
    with pytest.raises(DataError, match="500 images of each of 100 classes; it has 0 to 3"):
        cifar.load_cifar100()


def test_cifar100_names_are_the_hundred_published_ones_in_alphabetical_order():
    assert len(set(CIFAR100_NAMES)) == 100
    assert list(CIFAR100_NAMES) == sorted(CIFAR100_NAMES)


def differences(images: np.ndarray) -> np.ndarray:
    """Code images as the compact copy does, written from its description."""
    red, green, blue = images.transpose(1, 0, 2, 3)
    planes = np.stack([green, red - green, blue - green])
    for axis in (2, 3):
        planes = np.diff(planes, axis=axis, prepend=np.uint8(0)).astype(np.uint8)
    return planes


def test_compact_cifar10_gives_back_every_pixel():
    images = pixels(4, 3, 32, 32)
    assert np.array_equal(undo_differences(differences(images)), images)


def test_a_damaged_compact_block_is_refused_by_name(folder):
    folder.mkdir()
    source = unchecked(cifar.CIFAR10_SOURCES[2])
    paths = {name: folder / name for name in source.sums}
    np.savez(paths["labels.npz"], train=np.zeros(5, np.uint8), test=np.zeros(1, np.uint8))
    saved = io.BytesIO()
    np.save(saved, differences(pixels(1, 3, 32, 32)))
    for name in list(paths)[:-1]:
        paths[name].write_bytes(lzma.compress(saved.getvalue()))
    held = Held(source=source, paths=paths, where="")
    assert source.decode(held)["x"].shape == (6, 3, 32, 32)
    paths["train_3.npy.xz"].write_bytes(lzma.compress(saved.getvalue())[:-40])
    with pytest.raises(DataError, match=r"train_3\.npy\.xz should be a complete xz file"):
        source.decode(held)


def test_every_known_sum_is_a_sha256():
    known = (mnist.MNIST_SOURCES, mnist.FASHION_SOURCES, cifar.CIFAR10_SOURCES)
    sums = [sum_ for sources in known for source in sources for sum_ in source.sums.values()]
    assert {len(bytes.fromhex(sum_ or "")) for sum_ in sums} == {hashlib.sha256().digest_size}
    assert len(set(sums)) == len(sums)
