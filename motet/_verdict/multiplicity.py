"""Corrections of p-values for the number of tests: Holm, and Benjamini and Hochberg."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float] | np.ndarray, tests: int | None = None) -> list[float]:
    """Correct p-values so that any false claim at all is rare (Holm, 1979), keeping their order.

    Args:
        p_values: One per test.
        tests: Size of the family, if it has further tests that are not among these.

    >>> holm([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.04]
    >>> holm([0.01, 0.02], tests=10)
    [0.1, 0.18]
    """
    plain = np.asarray(p_values, dtype=float)
    order = plain.argsort(kind="stable")
    count = max(len(plain), tests or 0)
    scaled = plain[order] * np.arange(count, count - len(plain), -1)
    adjusted = np.empty_like(plain)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return [float(value) for value in adjusted]


def benjamini_hochberg(p_values: Sequence[float] | np.ndarray) -> list[float]:
    """Correct p-values so that few of the claims are false (Benjamini and Hochberg, 1995).

    >>> benjamini_hochberg([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.03]
    """
    plain = np.asarray(p_values, dtype=float)
    order = plain.argsort(kind="stable")[::-1]
    scaled = plain[order] * len(plain) / np.arange(len(plain), 0, -1)
    adjusted = np.empty_like(plain)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(scaled))
    return [float(value) for value in adjusted]
