"""What can be asked of the Ray back end, and the sentences for what cannot; no Ray is started."""

from __future__ import annotations

import socket
import sys

import pytest
from rehearsed import started

import motet
from motet import FedAvg
from motet._engine.stores.disk import DiskStore
from motet._engine.stores.memory import MemoryStore
from motet.config import RunChoice
from motet.errors import CapabilityError, RequestError
from motet.testing import ragged


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "motet._engine.backends.ray_actors", None)
    with pytest.raises(CapabilityError, match=r'pip install "motet\[ray\]"'):
        started(FedAvg(), backend="ray")


def test_settings_of_ray_are_refused_by_other_backends():
    with pytest.raises(
        RequestError, match='actors= is for backend="ray"; this is backend="serial"'
    ):
        started(FedAvg(), backend="serial", actors=2)


def test_a_run_without_actors_is_refused():
    with pytest.raises(RequestError, match="actors must be 1 or more"):
        started(FedAvg(), backend="ray", actors=0)


@pytest.mark.parametrize("make", [MemoryStore, lambda: DiskStore("state.sqlite")])
def test_states_in_two_places_are_refused(make):
    with pytest.raises(RequestError, match="leave store= out"):
        started(FedAvg(), backend="ray", store=make())


def test_a_comparison_keeps_its_states_in_its_processes():
    world, settings = ragged(), {"rounds": 1, "backend": "ray", "seeds": 1}
    with pytest.raises(RequestError, match="expects no state_dir="):
        motet.compare([FedAvg()], world.task, world.data, state_dir="here", **settings)
    with pytest.raises(RequestError, match="actors counts processes"):
        motet.compare([FedAvg()], world.task, world.data, actors=0, **settings)


def test_a_config_names_the_actors():
    choice = RunChoice(backend="ray", address="auto", actors=3, state_dir="states")
    chosen = choice.settings()
    assert [chosen[name] for name in ("backend", "address", "actors", "state_dir")] == [
        "ray", "auto", 3, "states",
    ]  # fmt: skip
    assert "actors" not in RunChoice().settings()
    with pytest.raises(RequestError, match=r"run\.actors must be 1 or more"):
        RunChoice(actors=0)


def test_a_cluster_that_is_not_there_is_said_to_be_so():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(RequestError, match=r"Ray cannot be reached at .* Start it there"):
        started(FedAvg(), backend="ray", address=address)
