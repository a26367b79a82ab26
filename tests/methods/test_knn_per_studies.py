"""Studies on a finished run: any base, all lambdas and capacities, groups, streams."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import motet
from motet import FedAvg, FedPer, Sgd
from motet._core import neighbours
from motet._core.keys import Key
from motet._core.neighbours import Datastore
from motet.analysis._knn_studies import (
    chosen_lambdas,
    evaluate_with_capacities,
    follow_stream,
    knn_per_from,
    lambda_capacity_table,
    weak_and_strong,
)
from motet.data import from_arrays
from motet.errors import CapabilityError, RequestError
from motet.methods._knn_per.datastore import NOTHING
from motet.methods._knn_per.method import KNNPer
from motet.methods._knn_per.stream import StreamStore

SIZES = {"a": 30, "b": 21, "c": 7}
TASK = motet.Task(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))


def pairs(split):
    def draw(shift, client, size):
        rng = Key(0).fold(client, split).numpy()
        x = rng.normal(size=(size, 4)).astype(np.float32)
        return x, (x[:, :3].argmax(1) + shift) % 3

    return {c: draw(i, c, n) for i, (c, n) in enumerate(SIZES.items())}


DATA = from_arrays(**{s: pairs(s) for s in ("train", "val", "test")}, classes=3)


def finished(method=None, **settings):
    return motet.run(method or KNNPer(k=3), TASK, DATA, rounds=1, **settings)


# ---- Any base ----------------------------------------------------------------------------------


@pytest.mark.parametrize("server_optimizer", [None, Sgd(lr=1.0, momentum=0.9)])
def test_the_model_of_a_finished_run_is_served_without_training(server_optimizer):
    base = finished(FedAvg(server_optimizer=server_optimizer))
    served = knn_per_from(base, k=3, capacity=5)
    trained = finished(KNNPer(k=3, capacity=5, server_optimizer=server_optimizer))
    for client in SIZES:
        x = DATA.examples(client, "test").x
        assert torch.equal(served.predict(client, x), trained.predict(client, x))


def test_a_base_that_has_no_whole_model_is_refused():
    with pytest.raises(CapabilityError, match="fedper"):
        knn_per_from(finished(FedPer(personal=("2",))))


def test_studies_are_refused_for_runs_of_another_method():
    with pytest.raises(RequestError, match="knn_per_from"):
        lambda_capacity_table(finished(FedAvg()))


# ---- All lambdas and capacities from one pass --------------------------------------------------


@pytest.mark.parametrize("capacity", [0, 4, 0.5, None])
@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
def test_every_cell_of_the_table_is_what_that_run_would_score(lam, capacity):
    run = finished()
    table = lambda_capacity_table(run, lams=(0.0, 0.6, 1.0), capacities=(0, 4, 0.5, None))
    cell = table.accuracy[:, table.lams.index(lam), table.capacities.index(capacity)]
    method = replace(run.setting.method, lam=lam, capacity=capacity)
    alone = motet.run(method, TASK, DATA, rounds=0, init=run.server).evaluate()
    assert cell.tolist() == alone.values.tolist()


def test_the_table_costs_one_search_per_client(monkeypatch):
    run, searches = finished(), []

    def counted(queries, keys):
        searches.append(len(keys))
        return squared(queries, keys)

    squared = neighbours.squared_distances
    monkeypatch.setattr(neighbours, "squared_distances", counted)
    lambda_capacity_table(run, capacities=(1, 2, 5, 0.5, None))
    assert searches == [30, 21, 7]


def test_the_validation_table_chooses_the_lambdas_that_clients_choose():
    run = finished()
    table = lambda_capacity_table(run, split="val", capacities=(3, None))
    best = {client: lams[1] for client, lams in table.best_lambdas().items()}
    assert best == pytest.approx(chosen_lambdas(run))


def test_choices_are_looked_up_in_the_test_table():
    run = finished()
    tables = {s: lambda_capacity_table(run, split=s, capacities=(None,)) for s in ("val", "test")}
    scored = tables["test"].at(tables["val"].best_lambdas())
    expected = run.evaluate()
    assert {c: float(value[0]) for c, value in scored.items()} == {
        row.client: row.value for row in expected.rows
    }


def test_a_test_table_chooses_nothing():
    with pytest.raises(CapabilityError, match="never choose"):
        lambda_capacity_table(finished()).best_lambdas()


def test_tables_average_over_clients_and_over_examples():
    table = lambda_capacity_table(finished(), lams=(0.5,), capacities=(None,))
    values = table.accuracy[:, 0, 0]
    assert table.mean[0, 0] == pytest.approx(values.mean())
    assert table.weighted_mean[0, 0] == pytest.approx(np.average(values, weights=[30, 21, 7]))


def test_prototypes_have_no_table():
    with pytest.raises(CapabilityError, match="prototypes"):
        lambda_capacity_table(knn_per_from(finished(FedAvg()), prototypes=4))


# ---- Weak and strong clients -------------------------------------------------------------------


def test_half_of_the_clients_are_weak_and_memory_stays_the_same_in_total():
    groups = weak_and_strong([f"c{i}" for i in range(10)], delta=0.3)
    assert sorted(groups.values()) == pytest.approx([0.2] * 5 + [0.8] * 5)
    assert groups != weak_and_strong(groups, delta=0.3, seed=1)
    assert groups == weak_and_strong(reversed(list(groups)), delta=0.3)
    with pytest.raises(RequestError, match="delta"):
        weak_and_strong("ab", delta=0.6)


def test_each_client_is_scored_at_its_own_capacity():
    run = finished()
    mixed = evaluate_with_capacities(run, {"a": 0.2, "b": 0.8, "c": 0.2})
    for client, capacity in {"a": 0.2, "b": 0.8, "c": 0.2}.items():
        method = replace(run.setting.method, capacity=capacity)
        alone = motet.run(method, TASK, DATA, rounds=0, init=run.server).evaluate()
        assert mixed[client].value == alone[client].value
        assert mixed[client].loss == pytest.approx(alone[client].loss)
    assert [row.client for row in mixed.rows] == ["a", "b", "c"]


# ---- Streams -----------------------------------------------------------------------------------


def numbered(*labels):
    labels = torch.tensor(labels)
    return Datastore(labels[:, None].float(), labels, torch.ones(len(labels)).bool())


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("first-in-first-out", [3, 4, 5]),
        ("frozen", [1, 2, 3]),
        ("growing", [1, 2, 3, 4, 5]),
    ],
)
def test_a_full_store_forgets_the_oldest_or_takes_nothing_or_grows(policy, kept):
    store = StreamStore(store=numbered(1, 2), policy=policy, capacity=3)
    later = store.add(*numbered(3)[:2]).add(*numbered(4, 5)[:2])
    assert later.store.labels.tolist() == kept
    assert later.store.keys[:, 0].tolist() == kept
    assert later.store.real.all()
    assert store.store.labels.tolist() == [1, 2]  # the old one is as it was


def test_a_stream_can_start_from_nothing_and_overflow_at_once():
    empty = StreamStore(store=NOTHING, policy="first-in-first-out", capacity=2)
    assert empty.add(*numbered(1, 2, 3)[:2]).store.labels.tolist() == [2, 3]


def test_an_unknown_policy_is_refused():
    with pytest.raises(RequestError, match="first-in-first-out"):
        StreamStore(store=numbered(1), policy="lifo", capacity=1)


def shifting_stream(batches=12, shift_at=4, size=25):
    """Points on a line whose labels are exchanged at some moment."""
    for time in range(batches):
        rng = Key(0).fold("stream", time).numpy()
        x = torch.from_numpy(rng.uniform(-1, 1, (size, 1))).float()
        y = (x[:, 0] > 0).long()
        yield x, y if time < shift_at else 1 - y


def test_after_a_shift_first_in_first_out_recovers_frozen_does_not_and_growing_is_late():
    x, y = map(torch.cat, zip(*shifting_stream(4), strict=True))
    data = from_arrays({"a": (x.numpy(), y.numpy())}, classes=2)
    task = motet.Task(lambda: nn.Linear(1, 2))
    run = motet.run(KNNPer(lam=1.0, k=5), task, data, rounds=0)
    accuracy = {
        policy: np.array(list(follow_stream(run, "a", shifting_stream(), policy=policy)))
        for policy in ("first-in-first-out", "frozen", "growing")
    }
    for before in accuracy.values():
        assert before[:4].min() > 0.9
        assert before[4] < 0.1  # the first batch after the shift comes as a surprise
    assert accuracy["frozen"][-1] < 0.1
    assert accuracy["first-in-first-out"][-1] > 0.9
    assert 0.2 < accuracy["growing"][8] < accuracy["first-in-first-out"][8]


def test_a_stream_is_scored_before_it_is_stored():
    run = finished(KNNPer(lam=1.0, k=1))
    x, y = (torch.from_numpy(v) for v in pairs("test")["a"])
    seen_twice = list(follow_stream(run, "a", [(x, y), (x, y)], policy="growing"))
    expected = run.evaluate(clients=["a"])
    assert seen_twice == [pytest.approx(expected.mean), 1.0]


def test_lambda_and_model_stay_as_they_are_along_a_stream():
    run = finished()
    x, y = (torch.from_numpy(v) for v in pairs("test")["b"])
    for policy in ("frozen", "first-in-first-out"):
        scored = list(follow_stream(run, "b", [(x, y)], policy=policy))
        assert_close(torch.tensor(scored), torch.tensor([run.evaluate(clients=["b"]).mean]).float())
