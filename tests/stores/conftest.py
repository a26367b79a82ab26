"""Every store."""

import pytest
from kept import state

from motet._engine.stores.disk import DiskStore
from motet._engine.stores.memory import MemoryStore


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "states.sqlite")
    made.expect(lambda: state(0))
    yield made
    made.close()
