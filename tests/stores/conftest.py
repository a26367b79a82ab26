"""Every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kept import state

from motet._engine.stores.disk import DiskStore
from motet._engine.stores.memory import MemoryStore, Store


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "states.sqlite")
    made.expect(lambda: state(0))
    yield made
    made.close()
