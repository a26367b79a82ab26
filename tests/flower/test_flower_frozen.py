"""Frozen weights in a deployment: every site has its own file, and hashes are all that travels."""

from __future__ import annotations

import json

import pytest
import tomli_w
from frozen_networks import adapted
from safetensors.torch import save_file
from staging import FlowerTransport, LoopbackGrid, ServerLimits, client_app, run_server

import motet
from motet._core import tree
from motet.config import experiment_from_dict
from motet.deploy._runtime.agreement import Agreement
from motet.deploy._wire_manifest import wire_manifest

SHAPE, CLASSES = (1, 8, 8), 10


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Write the base of the experiment, and another one of the same shapes."""
    folder = tmp_path_factory.mktemp("bases")
    frozen = motet.Task(lambda: adapted(SHAPE, CLASSES)).frozen
    save_file({name: leaf + 0.1 for name, leaf in frozen.items()}, folder / "base.safetensors")
    save_file({name: leaf + 0.2 for name, leaf in frozen.items()}, folder / "other.safetensors")
    return folder


def tables(base):
    return {
        "run": {"rounds": 2, "seed": 5, "evaluate_every": 2, "backend": "serial"},
        "method": {"name": "fedsim", "personal": "lora_B"},
        "data": {"name": "digits", "partition": {"name": "iid", "clients": 3}},
        "model": {"name": "frozen_networks:adapted", "base": str(base)},
    }


def played(folder, config, bases):
    """Run a server and its sites in this process; each site has a base of its own."""
    agreement = Agreement.from_text("adapters", tomli_w.dumps(config))
    nodes = {
        client: {"client": client, "state-dir": str(folder / client), "base": str(base)}
        for client, base in bases.items()
    }
    grid = LoopbackGrid(client_app(agreement=agreement), nodes)
    limits = ServerLimits(out=str(folder / "out"), deadline_s=60.0, min_clients=2)
    run = run_server(agreement, limits, FlowerTransport(grid, poll_s=0.01))
    lines = (folder / "out" / "rounds.jsonl").read_text().splitlines()
    return run, grid, [json.loads(line) for line in lines], agreement


def test_a_site_loads_its_own_base_and_no_frozen_weight_is_sent(pretrained, tmp_path):
    config = tables(pretrained / "base.safetensors")
    clients = experiment_from_dict(config).federation().clients
    bases = {client: tmp_path / f"{client}.safetensors" for client in clients}
    for file in bases.values():
        file.write_bytes((pretrained / "base.safetensors").read_bytes())
    run, grid, rounds, agreement = played(tmp_path, config, bases)
    task = run.setting.task
    sent = b"".join(grid.traffic)
    for leaf in task.frozen.values():
        assert leaf.numpy().tobytes() not in sent
    shared = set(task.names) - task.select("lora_B")
    size = sum(
        leaf.numel() * leaf.element_size() for leaf in tree.pick(run.server, shared).values()
    )
    assert set(run.server) == shared
    assert [line["bytes_up"] for line in rounds] == [3 * size] * 2
    assert {part.name for part in wire_manifest(agreement, tuple(clients)).up} == shared
    alone = experiment_from_dict(config).start(experiment_from_dict(config).federation())
    for _ in range(2):
        alone.advance()
    for name, leaf in alone.server.items():
        assert (leaf - run.server[name]).abs().max() < 1e-5


def test_a_site_with_another_base_is_refused_and_says_which(pretrained, tmp_path):
    config = tables(pretrained / "base.safetensors")
    clients = sorted(experiment_from_dict(config).federation().clients)
    bases = dict.fromkeys(clients, pretrained / "base.safetensors")
    bases[clients[0]] = pretrained / "other.safetensors"
    run, _, rounds, _ = played(tmp_path, config, bases)
    said = [line["rejected"][clients[0]] for line in rounds]
    assert all("frozen weights of this site" in why for why in said)
    assert all(run.setting.task.frozen_hash in why for why in said)
