"""An empty folder for data sets."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for data sets, and a cache of its own."""
    monkeypatch.setenv("MOTET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("MOTET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "data"
