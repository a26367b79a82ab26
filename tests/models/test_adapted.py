"""Reference networks with adapters on a frozen base, by config."""

from __future__ import annotations

import pytest
import torch

import motet
from motet import Key, Task
from motet._core import tree
from motet.config import experiment_from_dict
from motet.data import from_arrays
from motet.errors import RequestError
from motet.models import adapted, lora_layers


def images(sizes=(5, 3)):
    rng = Key(3).numpy()
    train = {
        f"c{i}": (rng.normal(size=(n, 3, 8, 8)).astype("float32"), rng.integers(0, 3, n))
        for i, n in enumerate(sizes)
    }
    return from_arrays(train, classes=3)


@pytest.mark.parametrize("kind", ["lora", "conv"])
def test_a_mobile_network_has_adapters_at_every_convolution_and_its_base_stays(kind):
    data = images()
    task = Task(lambda: adapted(data.shape, 3, of="mobilenet-v1", kind=kind, rank=1, width=0.1))
    before = task.frozen_hash
    assert all("lora" in n or "adapter" in n or "head" in n for n in task.parameters)
    if kind == "lora":
        groups = {layer.groups for layer in lora_layers(task.skeleton).values()}
        assert len(groups) > 1  # depthwise convolutions, too
    settings = {"rounds": 1, "seed": 1, "trial": False}
    method = motet.FedSim(personal="lora_B" if kind == "lora" else "adapters", batch_size=4)
    serial = motet.run(method, task, data, backend="serial", **settings)
    auto = motet.run(method, task, data, measure=False, **settings)
    expected = dict(tree.flatten((serial.server, dict(serial.clients))))
    for path, leaf in tree.flatten((auto.server, dict(auto.clients))):
        torch.testing.assert_close(leaf, expected[path], rtol=1e-3, atol=1e-5)
    assert serial.setting.task.frozen_hash == before


def test_a_config_names_the_network_its_adapters_and_its_base(tmp_path):
    from safetensors.torch import save_file

    table = {
        "run": {"rounds": 1, "backend": "serial"},
        "method": {"name": "fedsim", "personal": "lora_B"},
        "data": {"name": "digits", "partition": {"name": "dirichlet", "clients": 3, "alpha": 0.5}},
        "model": {"name": "motet.models:adapted", "of": "small-cnn", "rank": 2},
    }
    run = experiment_from_dict(table).start(experiment_from_dict(table).federation())
    frozen = run.setting.task.frozen
    save_file({name: leaf + 0.01 for name, leaf in frozen.items()}, tmp_path / "base.safetensors")
    table["model"]["base"] = str(tmp_path / "base.safetensors")
    other = experiment_from_dict(table).start(experiment_from_dict(table).federation())
    assert other.setting.task.frozen_hash != run.setting.task.frozen_hash
    other.advance()
    assert all("lora_A" in name or "head" in name for name in other.server)


def test_wrong_requests_are_named():
    with pytest.raises(RequestError, match='"lora" or "conv"'):
        adapted((1, 8, 8), 10, of="mlp", kind="prefix")
    with pytest.raises(RequestError, match='no layer for kind="conv"'):
        adapted((1, 8, 8), 10, of="mlp", kind="conv")
    with pytest.raises(RequestError, match="no model is called"):
        adapted((1, 8, 8), 10, of="mpl")


def test_a_network_of_the_user_s_own_is_adapted_by_its_path(tmp_path, monkeypatch):
    source = """
from torch import nn
def build(shape, classes, width=4):
    flat = nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], width), nn.ReLU())
    return nn.Sequential(*flat, nn.Linear(width, classes))
number = 3
"""
    (tmp_path / "own_adapted_net.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    network = adapted((1, 8, 8), 10, of="own_adapted_net:build", rank=2, width=6)
    trained = [name for name, p in network.named_parameters() if p.requires_grad]
    assert trained == ["1.lora_A", "1.lora_B", "3.weight", "3.bias"]
    assert network[1].lora_A.shape == (2, 64)
    with pytest.raises(RequestError, match="is a int; a function"):
        adapted((1, 8, 8), 10, of="own_adapted_net:number")
    with pytest.raises(RequestError, match="cannot be imported"):
        adapted((1, 8, 8), 10, of="no_such_module_here:build")
