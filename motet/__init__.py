"""Motet: personalized federated learning.

Many clients keep their data and learn together, and each ends with the model that is best for it.
The public names are listed in the stub `__init__.pyi`, and load on first use.
"""

from __future__ import annotations

from motet._core.lazy import attach
from motet._core.version import __version__ as __version__

__getattr__, __dir__, __all__ = attach(__name__)
