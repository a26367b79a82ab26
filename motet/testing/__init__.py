"""Try out a method of your own: the conformance suite, and the tiny worlds it runs in.

>>> from motet import FedAvg
>>> from motet.testing import check_method
>>> len(check_method(FedAvg())) > 20
True
"""

from __future__ import annotations

from motet.testing.comparing import ConformanceError
from motet.testing.conformance import Check, check_method, checks
from motet.testing.worlds import WORLDS, World, batch_norm, dropout, quadratic, ragged

__all__ = [
    "WORLDS",
    "Check",
    "ConformanceError",
    "World",
    "batch_norm",
    "check_method",
    "checks",
    "dropout",
    "quadratic",
    "ragged",
]
