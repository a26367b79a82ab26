"""Networks by name, and a sensible one for every data set."""

import pytest
import torch

import motet.data._registry
from motet import models
from motet.errors import RequestError

SHAPES = {
    "cifar10": (3, 32, 32),
    "cifar100": (3, 32, 32),
    "digits": (1, 8, 8),
    "fashion-mnist": (1, 28, 28),
    "femnist": (1, 28, 28),
    "flickr-aes": (3, 96, 96),
    "gldv2": (3, 96, 96),
    "har": (128, 6),
    "heart-disease": (13,),
    "librispeech": (64, 1600),
    "medpar": (6,),
    "mnist": (1, 28, 28),
    "mnist-by-writer": (1, 28, 28),
    "parkinsons": (19,),
    "rand-hie": (15,),
    "reddit": (10,),
    "shakespeare": (80,),
    "shakespeare-next": (80,),
    "stackoverflow": (20,),
    "tcga-brca": (39,),
}
MODEL_SHAPES = {"char-lstm": (9,), "sensor-cnn": (9, 2), "transformer": (9,), "word-lstm": (9,)}


def test_every_network_is_exported_under_its_class_name():
    with torch.device("meta"):
        networks = [
            models.build(name, shape=MODEL_SHAPES.get(name, (3, 32, 32)), classes=2)
            for name in models.names()
        ]
    assert {type(network).__name__ for network in networks} <= set(models.__all__)


def test_a_mistyped_model_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match=r'"resnet18".*did you mean "resnet-18"'):
        models.build("resnet18", shape=(3, 32, 32), classes=10)


def test_a_mistyped_option_is_answered_with_the_nearest():
    with pytest.raises(RequestError, match='"resnet-18" has no option "nrom"; did you mean "norm"'):
        models.build("resnet-18", shape=(3, 32, 32), classes=10, nrom="batch")
    with pytest.raises(RequestError, match="has no options"):
        models.build("logistic", shape=(3,), classes=10, hidden=3)


def test_a_regression_has_one_output():
    network = models.build("mlp", shape=(4,), classes=None)
    assert network(torch.zeros(2, 4)).shape == (2, 1)


@pytest.mark.parametrize("name", motet.data._registry.names())
def test_every_data_set_has_a_default_that_fits_its_shape(name):
    with torch.device("meta"):
        network = models.build(models.default_for(name), shape=SHAPES[name], classes=10)
        is_text = name in ("shakespeare", "shakespeare-next", "stackoverflow", "reddit")
        dtype = torch.int64 if is_text else torch.float32
        scores = network(torch.zeros(2, *SHAPES[name], dtype=dtype))
    assert scores.shape == ((2, *SHAPES[name], 10) if is_text else (2, 10))


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((3, 32, 32), "mcmahan-cnn"),
        ((1, 8, 8), "small-cnn"),
        ((13,), "mlp"),
        ((128, 6), "mlp"),
    ],
)
def test_unknown_data_get_a_default_by_their_shape(shape, name):
    assert models.default_for("my hospital", shape=shape) == name
    assert models.default_for(shape=shape) == name


def test_unknown_data_without_a_shape_are_refused():
    with pytest.raises(RequestError, match=r'"cifar".*did you mean "cifar10".*shape='):
        models.default_for("cifar")
