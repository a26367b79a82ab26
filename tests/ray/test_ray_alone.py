"""Ray as a run starts it, leaves it and refuses it; each test has a Ray of its own."""

from __future__ import annotations

import gc
import re
import tempfile
from pathlib import Path

import pytest
import ray
from ray.cluster_utils import Cluster
from rehearsed import WITH_RAY, finished, started

from motet import Ditto
from motet.errors import RequestError
from motet.testing._comparing import require_close, require_same

pytestmark = WITH_RAY
SOON = {  # a machine that does not answer is given up after two seconds
    "_system_config": {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
    }
}
GUIDE = Path(__file__).parents[2] / "docs/guides/ray.md"


def test_runs_share_a_ray_and_the_last_one_ends_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first = finished(Ditto(), backend="ray", actors=1, rounds=1)
    second = finished(Ditto(), backend="ray", actors=1, rounds=1)
    require_same(first.server, second.server, "the server")
    assert len(list(tmp_path.glob("motet-shards-*"))) == 2
    del first
    gc.collect()
    assert second.evaluate().rows
    del second
    gc.collect()
    assert not ray.is_initialized()
    assert not list(tmp_path.glob("motet-shards-*"))


def test_a_run_that_outlives_its_ray_leaves_the_next_one_alone():
    left_over = started(Ditto(), backend="ray", actors=1)
    ray.shutdown()
    run = finished(Ditto(), backend="ray", actors=1, rounds=1)
    del left_over
    gc.collect()
    assert run.evaluate().rows
    del run
    gc.collect()
    assert not ray.is_initialized()


def test_two_machines_have_a_shard_each_and_a_run_survives_the_death_of_one(tmp_path):
    """Its shard goes on elsewhere, from files that both machines see; they must be told where."""
    expected = finished(Ditto(), rounds=3, backend="serial")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **SOON})
    try:
        second = cluster.add_node(num_cpus=1)
        settings = {"backend": "ray", "address": cluster.address, "actors": 2}
        with pytest.raises(RequestError, match="Ray has 2 machines here, so state_dir= must say"):
            started(Ditto(), **settings)
        gc.collect()
        run = started(Ditto(), state_dir=tmp_path, **settings)
        run.advance()
        crew = run.setting.store.shards.crew
        assert len(set(places(crew))) == 2
        assert {path.name for path in tmp_path.iterdir()} == {"shard-0", "shard-1"}
        cluster.remove_node(second, allow_graceful=False)
        run.advance()
        run.advance()
        assert len(set(places(crew))) == 1
        require_close(expected.server, run.server, "the server", 1e-5)
        for client in expected.clients:
            require_close(expected.clients[client], run.clients[client], client, 1e-5)
        del run, crew
        gc.collect()
        assert not ray.is_initialized()
    finally:
        ray.shutdown()
        cluster.shutdown()


def places(crew):
    """The machine of every shard."""
    asked = [
        actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        for actor in crew._actors
    ]
    return ray.get(asked)


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    for block in re.findall(r"^```py\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, GUIDE.name, "exec"), namespace)
    namespace.clear()
    gc.collect()
    assert not ray.is_initialized()
