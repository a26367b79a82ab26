"""kNN-Per's studies of unequal memories and of data that change."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import motet
from motet.data import Split, from_arrays
from motet.methods._knn_per.capacity import CapacityTable
from motet.methods._knn_per.unequal import BATCH, CAPACITIES, DELTAS, unequal_study, weak_clients


def world(networks: str = "linear"):
    """Clients who call the same places by different labels: only memory tells them apart."""
    random = np.random.default_rng(0)
    rows = {}
    for number in range(4):
        x = random.normal(size=(120, 2)).astype(np.float32)
        y = ((x[:, 0] > 0).astype(int) + 2 * (x[:, 1] > 0) + number) % 4
        rows[f"c{number}"] = (x, y)
    layers = {
        "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(2, 4)),
        "deep": lambda: nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 4)),
    }
    return motet.Task(layers[networks]), from_arrays(rows, split=Split(0.25, 0.25))


@pytest.fixture(scope="module", params=["linear", "deep"])
def studies(request):
    task, data = world(request.param)
    run = motet.run(motet.KNNPer(k=3), task, data, rounds=1)
    return {
        study.title: study.data["series"]
        for study in run.setting.method.studies(run)
        if study.kind == "lines"
    }


def test_a_finished_run_shows_weak_and_strong_clients(studies):
    series = studies["Weak and strong clients"]
    assert list(series) == ["weak clients", "strong clients", "all clients"]
    assert [delta for delta, _ in series["weak clients"]] == list(DELTAS)
    weak, strong = (dict(map(tuple, series[f"{who} clients"])) for who in ("weak", "strong"))
    assert weak[0.5] < weak[0.0] - 0.1  # with no memory at all, labels are those of all clients
    assert strong[0.5] >= strong[0.0] - 0.05


def test_clients_with_new_data_recover_unless_their_memory_is_frozen(studies):
    series = studies["When a client's data change"]
    assert [at for at, _ in series["growing"]][:2] == [0, BATCH]
    last = {policy: curve[-1][1] for policy, curve in series.items()}
    first = {policy: curve[0][1] for policy, curve in series.items()}
    assert len(set(first.values())) == 1  # nothing of the stream has been stored yet
    assert last["first-in-first-out"] > last["frozen"] + 0.1
    assert last["growing"] > last["frozen"]


def test_each_group_is_looked_up_at_its_own_capacity_and_lambda():
    random = np.random.default_rng(1)
    clients = ("a", "b", "c", "d", "e")
    table = CapacityTable(
        "val", clients, (5,) * 5, (0.0, 1.0), CAPACITIES, random.random((5, 2, len(CAPACITIES)))
    )
    [study] = unequal_study(table)
    weak = weak_clients(clients)
    assert len(weak) == 2
    for delta in DELTAS:
        low, high = (CAPACITIES.index(0.5 + sign * delta) for sign in (-1, 1))
        best = table.accuracy.max(1)  # [clients, capacities]
        expected = np.mean([best[i, low] for i, c in enumerate(clients) if c in weak])
        assert dict(map(tuple, study.data["series"]["weak clients"]))[delta] == pytest.approx(
            expected
        )
        everyone = [best[i, low if c in weak else high] for i, c in enumerate(clients)]
        found = dict(map(tuple, study.data["series"]["all clients"]))[delta]
        assert found == pytest.approx(np.mean(everyone))


def test_weak_clients_are_those_of_the_analysis():
    shares = motet.analysis.weak_and_strong("abcdef", delta=0.25)
    assert {c for c, share in shares.items() if share == 0.25} == weak_clients("abcdef")


def test_one_client_or_little_data_make_no_such_study():
    rows = {"a": (np.zeros((30, 2), np.float32), np.arange(30) % 2)}
    data = from_arrays(rows, split=Split(0.3, 0.2))
    run = motet.run(motet.KNNPer(k=2), motet.Task(lambda: nn.Linear(2, 2)), data, rounds=1)
    titles = {study.title for study in run.setting.method.studies(run)}
    assert "When a client's data change" not in titles
    assert "Weak and strong clients" not in titles
