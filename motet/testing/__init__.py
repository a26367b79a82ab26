"""Try out a method of your own: the conformance suite, and the tiny worlds it runs in.

>>> from motet import FedAvg
>>> from motet.testing import check_method
>>> len(check_method(FedAvg())) > 20
True
"""

from __future__ import annotations

from motet._core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
