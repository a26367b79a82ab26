"""Deployments: a run as a Flower federation of real sites over TLS, as set up by `motet deploy`."""

from __future__ import annotations

from motet._core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__)
