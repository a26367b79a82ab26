"""Starting from the weights of a run, a checkpoint or a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import motet
from motet._engine.weights import Weights, hash_of, read_weights
from motet._runs.recorded_run import begin, resume
from motet.config import experiment_from_dict
from motet.data import Dirichlet, from_arrays, load
from motet.errors import RequestError, StateError, StructureError, WireError

SMALL = {
    "name": "digits",
    "limit": 200,
    "partition": {"name": "dirichlet", "clients": 3, "alpha": 1},
}


def experiment(**sections):
    tables = {
        "method": {"name": "fedavg", "lr": 0.1},
        "data": SMALL,
        "model": {"name": "mlp", "hidden": [8]},
        "run": {"rounds": 2, "backend": "serial"},
    }
    for name, changes in sections.items():
        tables[name] = tables[name] | changes
    return experiment_from_dict(tables)


def played(path: Path, **changes):
    recorded = begin(experiment(**changes), path)
    for _ in recorded.rounds():
        pass
    recorded.conclude()
    recorded.directory.close()
    return recorded


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of FedAvg in a directory."""
    path = tmp_path_factory.mktemp("runs") / "fedavg"
    return path, played(path).run


@pytest.fixture(scope="module")
def small():
    data = load("digits", Dirichlet(clients=3, alpha=1.0), limit=200)
    build = lambda: motet.models.build("mlp", shape=data.shape, classes=10, hidden=[8])  # noqa: E731
    return motet.Task(build), data


@pytest.mark.parametrize("place", [".", "checkpoint", "checkpoint/state.sqlite"])
def test_a_run_starts_from_the_server_of_another(finished, small, place):
    path, before = finished
    task, data = small
    run = motet.run(motet.FedAlt(), task, data, rounds=0, init=path / place)
    model = run.server | run.setting.fresh_client(data.clients[0])
    assert set(model) == set(before.server)
    assert all(torch.equal(model[name], value) for name, value in before.server.items())


def test_a_chain_of_methods_is_a_run_that_begins_where_another_ended(finished, tmp_path):
    path, before = finished
    chained = played(tmp_path / "fedalt", method={"name": "fedalt"}, model={"init": str(path)})
    assert chained.experiment.model.init == str(path.resolve())
    assert chained.experiment.model.init_sha256 == hash_of(before.server)
    again = motet.run(
        motet.FedAlt(optimizer=motet.Sgd(lr=0.1)),
        chained.experiment.task(chained.run.setting.federation),
        chained.run.setting.federation,
        rounds=2,
        init=before.server,
        backend="serial",
    )
    assert all(torch.equal(again.server[n], v) for n, v in chained.run.server.items())


def test_a_chained_run_resumes_and_refuses_other_weights(tmp_path):
    first = played(tmp_path / "a", run={"rounds": 1})
    save_file(first.run.server, tmp_path / "start.safetensors")
    whole = played(tmp_path / "whole", model={"init": str(tmp_path / "start.safetensors")})
    half = begin(experiment(model={"init": str(tmp_path / "start.safetensors")}), tmp_path / "half")
    next(half.rounds())
    half.save()
    half.directory.close()
    resumed = resume(tmp_path / "half")
    for _ in resumed.rounds():
        pass
    resumed.directory.close()
    assert all(torch.equal(v, resumed.run.server[n]) for n, v in whole.run.server.items())
    save_file({n: v + 1 for n, v in first.run.server.items()}, tmp_path / "start.safetensors")
    with pytest.raises(StateError, match=r"is not what this run began with.*SHA-256"):
        resume(tmp_path / "half")


class Wrapped(nn.Module):
    """The same layers as another network, under other names."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        self.classifier = nn.Linear(3, 5)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


RENAME = {"backbone.0": "body", "backbone.1.": "norm.", "classifier": "none"}


def test_names_are_mapped_by_prefix_and_the_rest_starts_afresh(tmp_path):
    state = Wrapped().state_dict()
    save_file(state, tmp_path / "w.safetensors")
    found = Weights(str(tmp_path / "w.safetensors"), RENAME).for_network(motet.Task(Plain))
    assert torch.equal(found.values["body.weight"], state["backbone.0.weight"])
    assert torch.equal(found.values["norm.running_var"], state["backbone.1.running_var"])
    assert "head.weight" not in found.values
    assert [
        remark
        for remark in found.remarks
        if "keep their initial values: head.bias, head.weight" in remark
    ]


@pytest.mark.parametrize(
    ("rename", "kind", "complaint"),
    [
        ({}, RequestError, "has no parameter of this network: it has backbone.0.bias"),
        ({"backbon": "body"}, RequestError, 'is called "backbon" or begins with it'),
        ({"backbone.0": "x", "classifier": "x"}, RequestError, 'the same name, "x.bias"'),
        (
            {"backbone.0": "body", "classifier": "head"},
            StructureError,
            r"head.weight of the network is 2x3 .*safetensors it is .*\(2 tensors do not fit\)",
        ),
    ],
)
def test_names_and_shapes_that_do_not_fit_are_refused(tmp_path, rename, kind, complaint):
    save_file(Wrapped().state_dict(), tmp_path / "w.safetensors")
    task = motet.Task(Plain)
    rows = {"a": (np.zeros((6, 4), np.float32), np.arange(6) % 2)}
    weights = Weights(str(tmp_path / "w.safetensors"), rename)
    with pytest.raises(kind, match=complaint):
        motet.run(motet.FedAvg(), task, from_arrays(rows), rounds=1, init=weights)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda path: None, "there is no run, checkpoint or .safetensors file at"),
        (lambda path: path.write_bytes(b"not tensors"), "is not a complete safetensors file"),
        (lambda path: path.mkdir(), "is not the directory of a run with a checkpoint"),
        (lambda path: save_file({}, path), "holds no weights to start from"),
    ],
)
def test_a_path_without_weights_is_refused_before_round_1(tmp_path, make, complaint):
    make(tmp_path / "there")
    with pytest.raises((RequestError, StateError), match=complaint):
        begin(experiment(model={"init": str(tmp_path / "there")}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_is_refused(finished, tmp_path):
    path, before = finished
    copy = tmp_path / "state.sqlite"
    written = bytearray((path / "checkpoint" / "state.sqlite").read_bytes())
    at = written.find(before.server["head.bias"].numpy().tobytes())
    assert at > 0
    written[at] ^= 1
    copy.write_bytes(written)
    with pytest.raises(WireError, match=r'damaged: the tensor "server/head.bias" is not what was'):
        read_weights(copy)


def test_keys_about_weights_need_weights():
    with pytest.raises(RequestError, match=r"there is no model\.init"):
        experiment(model={"rename": {"a": "b"}})
