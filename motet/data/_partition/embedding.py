"""Vectors that describe inputs, for `Latent`: by a function, or by a network trained for this.

Zhang et al., "Personalized Federated Learning with First Order Model Optimization", ICLR 2021,
appendix A.5, trains a VGG-11 and takes the input of its last layer. https://arxiv.org/abs/2012.08565
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet._core.keys import Key
from motet.data._convert import to_inputs, to_targets
from motet.data._partition.base import require_whole
from motet.data._raw import Raw
from motet.errors import CapabilityError, RequestError, one_line

Vectors = NDArray[np.float32]
AT_ONCE = 512  # rows that go through the network together


class Embedding(ABC):
    """Describes each row of a data set by a vector.

    Example:
        >>> import numpy as np
        >>> import motet
        >>> class FirstPixel(Embedding):
        ...     def vectors(self, raw, key):
        ...         return raw.x.reshape(len(raw.x), -1)[:, :1]
        ...     def identity(self):
        ...         return "first pixel"
        >>> raw = motet.data.Raw(np.arange(8.0).reshape(4, 2), np.zeros(4, int), classes=1)
        >>> FirstPixel().vectors(raw, motet.Key(0)).shape
        (4, 1)
    """

    @abstractmethod
    def vectors(self, raw: Raw, key: Key) -> Vectors:
        """Make a vector for each row, of training and test rows alike.

        Args:
            raw: The rows to divide.
            key: Source of the randomness.

        Returns:
            An array with one row per example.
        """

    @abstractmethod
    def identity(self) -> str:
        """Return what the vectors depend on, besides the data and the key."""


@dataclass(frozen=True, kw_only=True)
class Trained(Embedding):
    """The input of the last layer of a network that was trained on the training rows.

    Attributes:
        network: A reference network by name.
        accuracy: Training stops after the epoch that reaches this accuracy on training rows.
        epochs: Most epochs; it is an error if the accuracy is not reached by then.
        lr: Learning rate of SGD with momentum 0.9, which falls to 0 along a cosine.
        batch_size: Rows per step.

    Example:
        >>> from motet.data import Latent
        >>> Latent(clients=10, groups=4, embed=Trained(network="cnn", accuracy=0.9)).embed.epochs
        30
    """

    network: str = "vgg-11"
    accuracy: float = 0.85
    epochs: int = 30
    lr: float = 0.05
    batch_size: int = 128

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            require_whole(f"embed.{name}", getattr(self, name), 1)
        if not 0 <= self.accuracy <= 1:
            raise RequestError(
                f"embed.accuracy must be between 0 and 1; got {self.accuracy}.", option="accuracy"
            )

    def identity(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def vectors(self, raw: Raw, key: Key) -> Vectors:
        if raw.classes is None or raw.y.ndim != 1:
            raise CapabilityError(
                "an embedding is trained to tell classes apart, and these data have no class per "
                "row; give `embed` a function instead."
            )
        from motet.models._embedding import Training, learned_features

        rows = raw.rows_of("train")
        x = to_inputs(np.asarray(raw.x[rows]), raw.normalize)
        y = to_targets(np.asarray(raw.y[rows]), classes=raw.classes)
        features = learned_features(Training(**asdict(self)), x, y, raw.classes, key)
        parts = (raw.x[start : start + AT_ONCE] for start in range(0, len(raw.y), AT_ONCE))
        inputs = (to_inputs(np.asarray(part), raw.normalize) for part in parts)
        return np.concatenate([features(part).numpy().astype(np.float32) for part in inputs])


def embedding_named(name: str) -> Embedding | Callable[[NDArray[Any]], NDArray[Any]]:
    """Find what a config calls an embedding: "module:function", or a network to be trained.

    >>> embedding_named("small-cnn").network
    'small-cnn'
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        return Trained(network=name)
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as reason:
        raise RequestError(
            f'embed: "{name}" cannot be imported ({one_line(reason)}). Write it as '
            "package.module:function, and make sure that Python finds the package."
        ) from None
    if not callable(found):
        raise RequestError(f'embed: "{name}" is not a function.')
    made: Callable[[NDArray[Any]], NDArray[Any]] = found
    return made


def fingerprint(raw: Raw, *parts: str) -> str:
    """Hash the inputs and targets of a data set, and what else a result depends on."""
    digest = hashlib.sha256("\0".join(parts).encode())
    for array in (raw.x, raw.y):
        digest.update(f"{array.shape}{array.dtype}".encode())
        for start in range(0, len(array), AT_ONCE * 8):
            digest.update(np.ascontiguousarray(array[start : start + AT_ONCE * 8]).tobytes())
    return digest.hexdigest()
