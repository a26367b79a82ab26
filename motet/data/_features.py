"""Images replaced by features of a pretrained network, computed once and kept on disk.

A network on such features is a network with a frozen backbone: kNN-Per's pretrained setting.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motet.data._partition.embedding import fingerprint
from motet.data._raw import Raw
from motet.data._resizing import require_images, resized_images
from motet.data._sets.cache import cached
from motet.errors import RequestError, nearest

BACKBONES = ("efficientnet-lite0",)
SIZE = 96  # pixels of a side, where no size is given
AT_ONCE = 64


def featured(raw: Raw, backbone: str, size: int | None) -> Raw:
    """Replace images [channels, height, width] by features [1280]."""
    if backbone not in BACKBONES:
        raise RequestError(
            f'no backbone is called "{backbone}"; {nearest(backbone, BACKBONES)}.',
            option="backbone",
        )
    require_images(raw, "data.backbone")
    side = size or SIZE
    entry = f"features-{backbone}-{side}-{fingerprint(raw)[:20]}"
    made = cached(entry, lambda: {"x": _computed(raw.x, side)})
    return replace(raw, x=made["x"], normalize=None)


def _computed(images: NDArray[Any], side: int) -> NDArray[np.float16]:
    from motet.models._efficientnet import image_features

    scale = 255 if images.dtype == np.uint8 else 1
    parts = (resized_images(images[i : i + AT_ONCE], side) for i in range(0, len(images), AT_ONCE))
    inputs = (torch.from_numpy(part.astype(np.float32) / scale) for part in parts)
    return np.concatenate([image_features(x).numpy().astype(np.float16) for x in inputs])
