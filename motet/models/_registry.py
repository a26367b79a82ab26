"""Reference networks by name, and the default one for each data set."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from torch import nn

from motet.errors import RequestError, nearest
from motet.models._cnn import EmnistCNN, FomoCNN, McMahanCNN, SensorCNN, SmallCNN
from motet.models._mlp import MLP, Logistic
from motet.models._mobilenet import MobileNetV1, MobileNetV2
from motet.models._recurrent import CharLSTM, WordLSTM
from motet.models._resnet import ResNet18, ResNet34
from motet.models._transformer import Transformer
from motet.models._vgg import VGG11

_NETWORKS: dict[str, type[nn.Module]] = {
    "char-lstm": CharLSTM,
    "emnist-cnn": EmnistCNN,
    "fomo-cnn": FomoCNN,
    "logistic": Logistic,
    "mcmahan-cnn": McMahanCNN,
    "mlp": MLP,
    "mobilenet-v1": MobileNetV1,
    "mobilenet-v2": MobileNetV2,
    "resnet-18": ResNet18,
    "resnet-34": ResNet34,
    "sensor-cnn": SensorCNN,
    "small-cnn": SmallCNN,
    "transformer": Transformer,
    "vgg-11": VGG11,
    "word-lstm": WordLSTM,
}

_DEFAULTS = {
    "cifar10": "mcmahan-cnn",
    "cifar100": "mcmahan-cnn",
    "digits": "mlp",
    "fashion-mnist": "mcmahan-cnn",
    "femnist": "emnist-cnn",
    "flickr-aes": "mobilenet-v1",
    "gldv2": "mobilenet-v2",
    "har": "sensor-cnn",
    "heart-disease": "logistic",
    "librispeech": "mlp",
    "medpar": "mlp",
    "mnist": "mcmahan-cnn",
    "mnist-by-writer": "mcmahan-cnn",
    "parkinsons": "mlp",
    "rand-hie": "mlp",
    "reddit": "word-lstm",
    "shakespeare": "char-lstm",
    "shakespeare-next": "char-lstm",
    "stackoverflow": "word-lstm",
    "tcga-brca": "mlp",
}


def names() -> tuple[str, ...]:
    """List every reference network.

    Returns:
        Names for `motet.models.build`.

    Example:
        >>> "mlp" in names()
        True
    """
    return tuple(_NETWORKS)


RECIPE = "_motet_recipe"  # attribute of a network: how it was built, for exports


def build(name: str, *, shape: Sequence[int], classes: int | None, **options: Any) -> nn.Module:
    """Make the reference network called `name`, freshly initialised.

    Args:
        name: One of `names()`.
        shape: The shape of one example, as in `Federation.shape`.
        classes: Number of classes, as in `Federation.classes`; None (a regression): one output.
        options: The network's own, e.g. `norm="batch"`; the guide and the class list them.

    Returns:
        The network.

    Raises:
        RequestError: There is no such network or option.

    Example:
        >>> build("mlp", shape=(64,), classes=10, hidden=[32]).head
        Linear(in_features=32, out_features=10, bias=True)
    """
    if name not in _NETWORKS:
        raise RequestError(
            f'no model is called "{name}"; {nearest(name, _NETWORKS)}.', option="name"
        )
    network = _NETWORKS[name]
    _check_options(name, network, options)
    made = network(shape, 1 if classes is None else classes, **options)
    vars(made)[RECIPE] = {"name": name, **options}
    return made


def default_for(data: str | None = None, *, shape: Sequence[int] | None = None) -> str:
    """Name the network to start with, for a data set by name or else by the shape of an example.

    Args:
        data: A data set by name.
        shape: The shape of one example, for other data.

    Returns:
        A name for `build`.

    Raises:
        RequestError: The data set is unknown, and no shape was given.

    Example:
        >>> default_for("shakespeare")
        'char-lstm'
        >>> default_for(shape=(3, 64, 64))
        'mcmahan-cnn'
    """
    if data in _DEFAULTS:
        return _DEFAULTS[data]
    if shape is None:
        raise RequestError(
            f'no model is known for the data set "{data}"; {nearest(data or "", _DEFAULTS)}. '
            "Give shape= as well, or name a model."
        )
    if len(shape) != 3:
        return "mlp"
    return "mcmahan-cnn" if min(shape[1:]) >= 16 else "small-cnn"


def _check_options(name: str, network: type[nn.Module], options: dict[str, Any]) -> None:
    known = [
        parameter.name
        for parameter in inspect.signature(network).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    for option in options:
        if option not in known:
            hint = nearest(option, known) if known else "it has no options"
            raise RequestError(f'the model "{name}" has no option "{option}"; {hint}.')
