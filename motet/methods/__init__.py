"""The methods: 42 algorithms, and the base class for methods that share a part of the model.

Adding one: a module here, a line in the stub `__init__.pyi`, and a line in `_catalog.py`.
"""

from __future__ import annotations

from motet._core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
