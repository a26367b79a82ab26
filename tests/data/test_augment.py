"""Augmentation: which images change, how, and that all backends see the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import motet
from motet._core.keys import Key
from motet._engine.federation import start
from motet.config import experiment_from_dict
from motet.data import Dirichlet, Normalize, Split, from_arrays, load, rebuild
from motet.data._augment import augmented
from motet.errors import CapabilityError, RequestError


def federation(clients: int = 3, rows: int = 24):
    """Clients of unequal sizes, with images of 8x8 pixels in two channels."""
    random = np.random.default_rng(0)
    drawn = {f"c{i}": random.normal(size=(rows + 3 * i, 2, 8, 8)) for i in range(clients)}
    pairs = {
        c: (x.astype(np.float32), (x.mean((1, 2, 3)) > 0).astype(int)) for c, x in drawn.items()
    }
    return from_arrays(pairs, split=Split(0.3, 0.2))


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2))


def deep() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(256, 2),
    )


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(128, 2))


def test_a_flip_mirrors_about_half_of_the_images_and_changes_nothing_else():
    x = torch.randn(400, 3, 5, 6)
    seen = augmented(x, ("flip",), Key(0), None)
    same = (seen == x).flatten(1).all(1)
    mirrored = (seen == x.flip(-1)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert 150 < int(mirrored.sum()) < 250


def test_a_crop_is_a_window_of_the_image_in_a_black_frame():
    x = torch.rand(200, 3, 16, 16) + 1
    scale = Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.5))
    seen = augmented(x, ("crop",), Key(0), scale)
    black = torch.tensor([-0.5 / 0.2, -0.4 / 0.25, -0.3 / 0.5]).reshape(3, 1, 1)
    framed = black.expand(200, 3, 20, 20).clone()
    framed[:, :, 2:18, 2:18] = x
    windows = set()
    for image, frame in zip(seen, framed, strict=True):
        places = [
            (i, j)
            for i in range(5)
            for j in range(5)
            if torch.equal(frame[:, i : i + 16, j : j + 16], image)
        ]
        assert len(places) == 1
        windows |= set(places)
    assert len(windows) == 25  # every shift occurs


@pytest.mark.parametrize(
    ("network", "method"),
    [(conv, motet.FedAvgFT()), (deep, motet.FedPer()), (flat, motet.Ditto()), (conv, motet.Flow())],
)
def test_every_backend_trains_on_the_same_images(network, method):
    task = motet.Task(network)

    def model(backend: str, data: motet.Federation) -> list[torch.Tensor]:
        run = motet.run(method, task, data, rounds=1, seed=1, backend=backend)
        return [leaf for _, leaf in motet.method.tree.flatten(run.personal("c1"))]

    varied, plain = federation().augmented("flip", "crop"), federation()
    alone, stacked, unvaried = (
        model("serial", varied),
        model("vectorized", varied),
        model("serial", plain),
    )
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(alone, stacked, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(alone, unvaried, strict=True))


def test_images_are_drawn_by_seed_round_and_client_and_validation_and_test_stay():
    data = federation().augmented("flip", "crop")
    task = motet.Task(flat)

    def seen(seed: int, number: int, client: str, split: str = "train") -> torch.Tensor:
        spec = start(motet.FedAvg(), task, data, rounds=3, seed=seed).setting
        plan = motet.method.Plan(split=split)
        return spec.data(client, {"train": plan}, number)["train"].x

    first = seen(0, 0, "c0")
    assert torch.equal(first, seen(0, 0, "c0"))
    for other in (seen(1, 0, "c0"), seen(0, 1, "c0")):
        assert not torch.equal(first, other)
    assert torch.equal(seen(0, 0, "c0", "val"), data.examples("c0", "val").x)
    for split in ("val", "test"):
        plain = federation().examples("c1", split)
        assert torch.equal(data.examples("c1", split).x, plain.x)


def test_stores_and_choices_are_made_from_the_images_as_they_are():
    data, task = federation().augmented("flip"), motet.Task(flat)
    spec = start(motet.KNNPer(k=2), task, data, rounds=1).setting
    served = spec.data("c0", spec.serving_plans("after_adapt"), 1)
    assert torch.equal(served["store"].x, data.examples("c0", "train").x)


def test_augmentation_is_part_of_the_manifest_and_comes_back():
    data = load("digits", Dirichlet(clients=3, alpha=1.0), limit=200).augmented("flip", "flip")
    assert data.recipe["steps"] == [{"augment": ["flip"]}]
    assert rebuild(data.manifest()).augment == ("flip",)


def test_a_single_augmentation_needs_no_list_in_a_config():
    tables = {"method": {"name": "local"}, "data": {"name": "digits", "augment": "flip"}}
    assert experiment_from_dict(tables).federation().augment == ("flip",)


def test_unknown_augmentations_and_data_that_are_no_images_are_refused():
    with pytest.raises(RequestError, match='no augmentation is called "flop"; did you mean "flip"'):
        federation().augmented("flop")
    rows = {"a": (np.zeros((4, 5), np.float32), np.arange(4) % 2)}
    with pytest.raises(CapabilityError, match=r"is for images .* have shape \[5\]"):
        from_arrays(rows).augmented("flip")
