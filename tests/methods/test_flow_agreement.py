"""Methods that route: the same on every backend, every promise kept, statistics, real data."""

from functools import partial

import pytest
from routed_worlds import LR, LSTM_WORLD, Net, Normed, finish, world
from torch.testing import assert_close

import motet
from motet import FedAvg, Sgd, Task
from motet._engine.evaluation import Evaluation, Score
from motet.analysis import routing_shares, share_harmed
from motet.errors import CapabilityError
from motet.methods._flow.dynamic_routing import DynamicRouting
from motet.methods._flow.method import Flow
from motet.models import CharLSTM, SmallCNN, Transformer
from motet.testing import check_method
from motet.testing._agreement import programs_made

NETWORKS = {
    "mlp with dropout": (partial(Net, 0.4), {}),
    "batch statistics": (Normed, {}),
    "cnn": (lambda: SmallCNN((1, 8, 8), 3), {"shape": (1, 8, 8)}),
    "char-lstm": (lambda: CharLSTM((5,), 7, embedding=3, hidden=4, layers=2), LSTM_WORLD),
    "transformer": (
        lambda: Transformer(
            (5,), 7, predict="last", layers=2, heads=2, width=8, feedforward=8, adapters=2
        ),
        {"shape": (5,), "tokens": 7},
    ),
}

BRIEF = {"epochs": 1, "local_epochs": 1, "adapt_epochs": 1}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", [Flow, DynamicRouting])
def test_stacked_clients_end_where_single_ones_do(kind, name):
    build, about = NETWORKS[name]
    task, data = Task(build), world(sizes=(9, 6, 1), **about)
    method = kind(optimizer=Sgd(lr=0.1, momentum=0.5), batch_size=4, epochs=1, adapt_epochs=1)
    oracle, stacked = (finish(method, task, data, b, rounds=2) for b in ("serial", "vectorized"))
    assert_close(oracle.server, stacked.server, atol=1e-5, rtol=1e-5)
    for client in data.clients:
        x = data.examples(client, "test").x
        assert_close(oracle.predict(client, x), stacked.predict(client, x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("recurrence", ["poster", "release"])
def test_recurrent_routing_keeps_every_promise(recurrence):
    task = Task(lambda: CharLSTM((5,), 7, embedding=3, hidden=4, layers=1))
    data = world(sizes=(9, 5, 1), **LSTM_WORLD)
    method = Flow(recurrence=recurrence, batch_size=4, hidden=(4,), **BRIEF)
    check_method(method, task, data)


# ---- statistics --------------------------------------------------------------------------------


def test_both_backends_report_the_same_routing_shares():
    method = Flow(optimizer=LR, lam=0.0)
    tables = [routing_shares(finish(method, backend=b)) for b in ("serial", "vectorized")]
    assert tables[0] == tables[1]


@pytest.mark.parametrize("kind", [Flow, DynamicRouting])
def test_routing_shares_count_every_label_of_every_client(kind):
    data = world()
    run = finish(kind(optimizer=LR), data=data)
    table = routing_shares(run, "test")
    for client in data.clients:
        y = data.examples(client, "test").y
        mine = {(r.layer, r.label): r.examples for r in table.rows if r.client == client}
        assert mine == {
            (layer, label): int((y == label).sum())
            for layer in ("body", "head")
            for label in set(y.tolist())
        }
    assert all(0 <= row.share <= 1 for row in table.rows)
    assert routing_shares(run, "test", ["c1"]).by("client").keys() == {"c1"}


def test_routing_shares_are_the_routes_of_the_predictor():
    run = finish(Flow(optimizer=LR, lam=0.0))
    x = run.setting.federation.examples("c0", "val").x
    routes = run.setting.method.routes(run.personal("c0"), x, run.setting.task)
    table = routing_shares(run, clients=["c0"])
    for layer, to_shared in routes.items():
        assert table.by("layer")[layer] == pytest.approx(float(1 - to_shared.mean()))


def test_a_method_without_routes_has_no_shares():
    with pytest.raises(CapabilityError, match="fedavg does not route instances"):
        routing_shares(finish(FedAvg(), rounds=0))


def test_a_client_that_gains_nothing_counts_as_harmed():
    def table(*values):
        rows = tuple(Score(c, 10, v, 1.0) for c, v in zip("abcd", values, strict=True))
        return Evaluation("flow", "accuracy", "test", "after_adapt", 1, rows)

    before, after = table(0.5, 0.5, 0.5, 0.5), table(0.6, 0.5, 0.4, 0.7)
    assert share_harmed(after, before) == 0.5
    assert after.harmed(before) == 0.25


# ---- what it is for ----------------------------------------------------------------------------


def test_flow_learns_on_digits_and_helps_clients_that_differ():
    data = motet.data.load("digits", motet.data.Pathological(clients=6, classes=2), seed=0)
    task = Task(lambda: motet.models.build("mlp", shape=data.shape, classes=10, hidden=[32]))
    run = finish(Flow(), task, data, "vectorized", rounds=8)
    personal, alone = run.evaluate("val"), run.evaluate("val", point="after_broadcast")
    assert personal.mean > 0.9
    assert personal.mean > alone.mean + 0.1


@pytest.mark.parametrize("mode", ["stack", "loop"])
@pytest.mark.parametrize("kind", [Flow, DynamicRouting])
def test_later_rounds_and_later_runs_trace_nothing_new(kind, mode):
    task, data, counts = Task(NETWORKS["mlp with dropout"][0]), world(sizes=(9, 6, 1)), []
    method = kind(optimizer=LR, batch_size=4, epochs=1, adapt_epochs=1)
    options = {"backend": "vectorized", "traced": True, "mode": mode}
    with programs_made() as made:
        for _ in range(2):
            run = finish(method, task, data, rounds=0, **options)
            for _ in range(3):
                run.advance()
                run.evaluate("val")
                counts.append(len(made))
    assert counts[0] > 0
    assert set(counts[1:]) == {counts[1]}
