"""Image networks compute what their papers draw: layer by layer, and stage by stage."""

import pytest
import torch
from torch import nn

from motet import models

CONV, POOL, FLAT, RELU = nn.Conv2d, nn.MaxPool2d(2), nn.Flatten(), nn.ReLU()

DRAWN = {
    "mcmahan-cnn": ((1, 28, 28), [
        CONV(1, 32, 5, padding=2), RELU, POOL, CONV(32, 64, 5, padding=2), RELU, POOL,
        FLAT, nn.Linear(3136, 512), RELU, nn.Linear(512, 10),
    ]),
    "fomo-cnn": ((3, 32, 32), [
        CONV(3, 32, 3), RELU, POOL, CONV(32, 64, 3), RELU, POOL, CONV(64, 64, 3), RELU,
        FLAT, nn.Linear(1024, 64), RELU, nn.Linear(64, 10),
    ]),
    "emnist-cnn": ((1, 28, 28), [
        CONV(1, 32, 3), RELU, CONV(32, 64, 3), RELU, POOL,
        FLAT, nn.Linear(9216, 128), RELU, nn.Linear(128, 10),
    ]),
    "small-cnn": ((1, 8, 8), [
        CONV(1, 16, 3, padding=1), RELU, POOL, CONV(16, 32, 3, padding=1), RELU, POOL,
        FLAT, nn.Linear(128, 64), RELU, nn.Linear(64, 10),
    ]),
    "mlp": ((1, 28, 28), [FLAT, nn.Linear(784, 200), RELU, nn.Linear(200, 10)]),
    "logistic": ((1, 28, 28), [FLAT, nn.Linear(784, 10)]),
}  # fmt: skip


def images(*shape):
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", DRAWN)
def test_a_small_network_is_the_chain_its_paper_draws(name):
    shape, layers = DRAWN[name]
    network, chain = models.build(name, shape=shape, classes=10), nn.Sequential(*layers)
    weights = zip(chain.state_dict(), network.state_dict().values(), strict=True)
    chain.load_state_dict(dict(weights))
    torch.testing.assert_close(network(images(*shape)), chain(images(*shape)))


def test_a_sensor_window_is_read_along_time():
    network = models.build("sensor-cnn", shape=(16, 2), classes=3)
    channels_first = images(16, 2).transpose(1, 2)
    features = network.conv2(network.conv1(channels_first).relu()).relu().mean(2)
    torch.testing.assert_close(network(images(16, 2)), network.head(features))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mobilenet-v1", [112] + [112, 56, 56, 28, 28] + [14] * 6 + [7] * 2),
        ("mobilenet-v2", [112] + [112, 56, 56, 28, 28, 28] + [14] * 7 + [7] * 4),
    ],
)
def test_a_mobilenet_halves_the_image_where_its_paper_says(name, sizes):
    with torch.device("meta"):
        network = models.build(name, shape=(3, 224, 224), classes=10, stem="imagenet")
        x = torch.zeros(1, 3, 224, 224)
        seen = [(x := block(x)).shape[-1] for block in (network.stem, *network.blocks)]
    assert seen == sizes


@pytest.mark.parametrize("side", [32, 33, 65])
def test_vgg_takes_any_image_of_32_pixels_or_more(side):
    with torch.device("meta"):
        network = models.build("vgg-11", shape=(3, side, side), classes=10)
        assert network(torch.zeros(2, 3, side, side)).shape == (2, 10)


def test_dropout_acts_in_training_only():
    network = models.build("emnist-cnn", shape=(1, 8, 8), classes=3, dropout=(0.25, 0.5))
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.25, 0.5]
    network.eval()
    assert torch.equal(network(images(1, 8, 8)), network(images(1, 8, 8)))
