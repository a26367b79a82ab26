"""Differential privacy: noisy local training, and an account of what it has spent."""

from __future__ import annotations
