"""Flower's own simulation engine, on Ray: several methods in one simulation."""

from __future__ import annotations

import os
import warnings
from unittest.mock import patch

import pytest
from staging import Stage

from motet.methods import _catalog as catalog
from motet.testing._comparing import require_close

with warnings.catch_warnings():  # of packages that Flower and Ray import, about each other
    warnings.simplefilter("ignore")
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from motet.deploy._runtime.flower_apps import FlowerTransport, client_app

pytestmark = pytest.mark.distributed

# Each in its own way, as in test_distributed.py; all others are in test_flower_agreement.py.
METHODS = ("fedper", "fedfomo", "ifca", "scaffold")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
ON_TWO_CORES = {
    "init_args": {"address": "local", "num_cpus": 2, "include_dashboard": False},
    "client_resources": {"num_cpus": 1.0, "num_gpus": 0.0},
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Every experiment, one after another: starting Ray takes longer than all of them."""
    folder = tmp_path_factory.mktemp("simulation")
    stages = {m: Stage.set(catalog.method_class(m)(), folder / m) for m in METHODS}
    runs = {}
    clients, server = ClientApp(), ServerApp()
    apps = {
        stage.agreement.agreed: client_app({"state-dir": str(stage.folder)}, stage.agreement)
        for stage in stages.values()
    }

    @clients.train()
    def train(message, context):
        return apps[message.content["header"]["agreed"]](message, context)

    @clients.query("score")
    def score(message, context):
        return apps[message.content["header"]["agreed"]](message, context)

    @server.main()
    def main(grid, context):
        for name, stage in stages.items():
            names = stage.world.data.clients
            runs[name] = stage.play(FlowerTransport(grid, names, poll_s=0.05), deadline_s=120.0)

    with patch.dict(os.environ, QUIET), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_simulation(server, clients, len(names_of(stages)), backend_config=ON_TWO_CORES)
    return stages, runs


def names_of(stages):
    return next(iter(stages.values())).world.data.clients


@pytest.mark.parametrize("name", METHODS)
def test_a_simulation_of_flower_s_ends_where_ours_does(name, simulated):
    stages, runs = simulated
    oracle = stages[name].oracle()
    require_close(oracle.server, runs[name].server, "the server's state", 1e-5)
    for client in oracle.clients:
        kept = stages[name].kept(client, stages[name].folder)
        require_close(oracle.clients[client], kept, f"what {client} keeps", 1e-5)
