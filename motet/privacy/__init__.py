"""Differential privacy: noise on gradients or on uploads, and what it guarantees."""

from __future__ import annotations

from motet.privacy._guarantees import Guarantee, NoPromise, Promise
from motet.privacy._ledger import guarantee_of, is_private, spending
from motet.privacy._optimizer import Private
from motet.privacy._uploads import PrivateMean

__all__ = [
    "Guarantee",
    "NoPromise",
    "Private",
    "PrivateMean",
    "Promise",
    "guarantee_of",
    "is_private",
    "spending",
]
