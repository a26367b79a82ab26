"""The real data sets, if MOTET_DATA is a folder that contains them."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest

from motet.data._registry import Raw, dataset
from motet.data._sets import cifar, mnist, shakespeare
from motet.data._sets.cifar_names import CIFAR100_NAMES
from motet.data._sets.cifar_planes import read_block, read_labels
from motet.data._sets.files import locate

pytestmark = pytest.mark.data


@pytest.fixture(scope="module", autouse=True)
def one_cache(tmp_path_factory):
    """Decode each data set once for the whole file, and leave the user's own cache alone."""
    with pytest.MonkeyPatch.context() as patch:
        if "MOTET_CACHE" not in os.environ:
            patch.setenv("MOTET_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def load(name: str) -> Raw:
    return dataset(name).load()


def counts(values: np.ndarray) -> dict[str, int]:
    return dict(
        zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True)
    )


def mean_and_deviation(pixels: np.ndarray) -> tuple[float, float]:
    """Take exact moments from a histogram of the bytes; floats of all pixels need gigabytes."""
    parts = np.array_split(pixels, 50)
    weights = sum(np.bincount(part.reshape(-1), minlength=256) for part in parts)
    levels = np.arange(256) / 255
    mean = np.average(levels, weights=weights)
    return mean, np.sqrt(np.average((levels - mean) ** 2, weights=weights))


def test_cifar10_has_its_images_in_the_published_order():
    raw = load("cifar10")
    assert isinstance(raw.x, np.memmap)
    assert raw.x.dtype == np.uint8
    assert raw.x.shape == (60_000, 3, 32, 32)
    assert raw.test_rows.tolist() == list(range(50_000, 60_000))
    assert np.bincount(raw.y[:50_000]).tolist() == [5_000] * 10
    assert np.bincount(raw.y[50_000:]).tolist() == [1_000] * 10
    assert [raw.labels[k] for k in raw.y[:3]] == ["frog", "truck", "truck"]


def test_cifar10_normalisation_is_that_of_its_training_images():
    raw = load("cifar10")
    moments = [mean_and_deviation(raw.x[:50_000, channel]) for channel in range(3)]
    means, deviations = zip(*moments, strict=True)
    assert means == pytest.approx((0.4914, 0.4822, 0.4465), abs=5e-5)
    assert means == pytest.approx(raw.normalize.mean, abs=5e-5)
    assert deviations == pytest.approx(raw.normalize.std, abs=5e-5)


def test_cifar10_is_byte_for_byte_the_published_binary_version():
    raw = load("cifar10")
    labels = raw.y[50_000:].astype(np.uint8)[:, None]
    records = np.hstack([labels, raw.x[50_000:].reshape(10_000, -1)])
    published = cifar.CIFAR10_SOURCES[0].sums["test_batch.bin"]
    assert hashlib.sha256(records.tobytes()).hexdigest() == published


def test_cifar100_has_its_files_and_five_classes_in_each_superclass():
    held = locate("cifar100", cifar.CIFAR100_SOURCES, cifar.CIFAR100_WHERE)
    assert all(len(held.read(name)) for name in held.paths)  # the sums
    images = read_block(held, "test.npy.xz")  # all of them would take ten seconds
    assert images.shape == (10_000, 3, 32, 32)
    moments = [mean_and_deviation(images[:, channel]) for channel in range(3)]
    means, deviations = zip(*moments, strict=True)
    assert means == pytest.approx((0.5071, 0.4865, 0.4409), abs=2e-3)
    assert deviations == pytest.approx((0.2673, 0.2564, 0.2762), abs=2e-3)
    labels = read_labels(held)
    for part, each in (("train", 500), ("test", 100)):
        assert np.bincount(labels[part]).tolist() == [each] * 100
        pairs = set(zip(labels[f"{part}_coarse"].tolist(), labels[part].tolist(), strict=True))
        assert np.bincount([coarse for coarse, _ in pairs]).tolist() == [5] * 20
    names = CIFAR100_NAMES
    fish = next(coarse for coarse, fine in pairs if names[fine] == "shark")
    found = {names[fine] for coarse, fine in pairs if coarse == fish}
    assert found == {"aquarium_fish", "flatfish", "ray", "shark", "trout"}


def test_mnist_is_byte_for_byte_the_published_idx_files():
    raw = load("mnist")
    assert isinstance(raw.x, np.memmap)
    assert raw.x.shape == (70_000, 1, 28, 28)
    header = bytes.fromhex("00000803 00002710 0000001c 0000001c")
    published = mnist.MNIST_SOURCES[0].sums["t10k-images-idx3-ubyte"]
    assert hashlib.sha256(header + raw.x[60_000:].tobytes()).hexdigest() == published
    moments = mean_and_deviation(raw.x[:60_000])
    assert moments == pytest.approx((raw.normalize.mean[0], raw.normalize.std[0]), abs=5e-5)


def test_mnist_by_writer_has_539_writers():
    raw = load("mnist-by-writer")
    per_writer = counts(raw.clients)
    assert isinstance(raw.x, np.memmap)
    assert raw.x.shape == (60_000, 1, 28, 28)
    assert len(per_writer) == 539
    assert (min(per_writer.values()), max(per_writer.values())) == (19, 131)
    assert np.median(list(per_writer.values())) == 116


def test_shakespeare_has_638_roles_of_a_thousand_characters():
    raw = load("shakespeare")
    assert isinstance(raw.x, np.memmap)
    assert raw.x.shape == raw.y.shape == (50_419, 80)
    assert len(counts(raw.clients)) == 638
    assert raw.classes == 74
    assert int(raw.y.max()) == 73
    assert np.array_equal(raw.x[:, 1:], raw.y[:, :-1])
    everyone = {"train", "test"}
    assert all(
        set(raw.split[raw.clients == client].tolist()) == everyone
        for client in ("Hamlet-Prince-of-Denmark/HAMLET", "Macbeth/LADY-MACBETH")
    )


def test_shakespeare_reads_as_written():
    raw = load("shakespeare")
    [first, *_] = np.flatnonzero(raw.clients == "Macbeth/FIRST-WITCH")
    said = "".join(raw.labels[token] for token in raw.x[first])
    assert said.startswith("When shall we three meet again\nIn thunder, lightning, or in rain?\n")


def test_shakespeare_with_every_role_still_has_a_name_for_each():
    raw = shakespeare.load(min_chars=0)
    assert (
        len(counts(raw.clients)) == 863
    )  # of 1,349; the others have less than a window of test text
    assert all(client.isascii() and " " not in client for client in counts(raw.clients))


def test_har_has_thirty_people_who_repeat_the_protocol_for_the_test():
    raw = load("har")
    per_person = counts(raw.clients)
    assert raw.x.shape == (10_411, 6, 128)
    assert raw.x.dtype == np.float32
    assert len(per_person) == 30
    assert (min(per_person.values()), max(per_person.values())) == (284, 413)
    assert counts(raw.split) == {"": 180, "test": 5_115, "train": 4_237, "val": 879}
    for person in per_person:
        mine = raw.clients == person
        assert set(raw.y[mine & (raw.split == "train")]) == set(range(6))
        assert set(raw.y[mine & (raw.split == "test")]) == set(range(6))


def test_har_measures_gravity_as_one_g():
    raw = load("har")
    standing = raw.x[raw.y == raw.labels.index("standing")]
    gravity = np.linalg.norm(standing[:, :3].mean(axis=2), axis=1)
    assert np.median(gravity) == pytest.approx(1.0, abs=0.05)


def test_heart_disease_has_four_hospitals_with_their_own_rates():
    raw = load("heart-disease")
    assert counts(raw.clients) == {
        "cleveland": 303,
        "hungarian": 294,
        "switzerland": 123,
        "va": 200,
    }
    assert np.isfinite(raw.x).all()
    rates = {name: raw.y[raw.clients == name].mean() for name in counts(raw.clients)}
    published = {"cleveland": 0.459, "hungarian": 0.361, "switzerland": 0.935, "va": 0.745}
    assert rates == pytest.approx(published, abs=5e-4)


def test_switzerland_measured_no_cholesterol():
    from motet.data._sets.heart_disease import FEATURES

    raw = load("heart-disease")
    missing = raw.x[:, FEATURES.index("chol_missing")]
    assert missing[raw.clients == "switzerland"].all()
    assert not missing[raw.clients == "cleveland"].any()


def test_no_half_of_a_har_window_is_in_two_splits():
    raw = load("har")
    halves = {
        split: {
            half.tobytes() for x in raw.x[raw.split == split] for half in np.split(x, 2, axis=1)
        }
        for split in ("train", "val", "test")
    }
    assert not halves["train"] & halves["val"]
    assert not halves["test"] & (halves["train"] | halves["val"])
