"""scikit-learn's digits: 1,797 handwritten digits of 8x8 pixels. Needs no files."""

from __future__ import annotations

from functools import partial

import numpy as np

from motet.data._partition import Pathological
from motet.data._registry import Dataset, Normalize, Raw


def load() -> Raw:
    """Return the digits as float32 [1797, 1, 8, 8], grey levels 0 to 16."""
    from sklearn.datasets import load_digits

    pixels, digit = load_digits(return_X_y=True)
    return Raw(
        x=pixels.astype(np.float32).reshape(-1, 1, 8, 8),
        y=digit.astype(np.int64),
        labels=tuple("0123456789"),
        normalize=Normalize(mean=(0.0,), std=(16.0,)),
        classes=10,
    )


DIGITS = Dataset(
    name="digits",
    summary="1,797 handwritten digits, 8x8 grey, 10 classes; comes with scikit-learn",
    load=load,
    natural=False,
    default_partition=partial(Pathological, clients=20, classes=2),
    where="it comes with scikit-learn.",
)
